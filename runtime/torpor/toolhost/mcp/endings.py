"""What a connection ended with, in words, and what of it concerns others. Pure.

Above: ``connection``.
"""

import anyio

from torpor.errors import ConfigError
from torpor.toolhost.mcp.session import ConnectionLost, NotSent, ServerError, Unreachable
from torpor.toolhost.mcp.values import NO_CREDENTIAL, NoCredential
from torpor.toolhost.process import NotStarted


def why_of(exc: BaseException) -> str:
    """The kind of a fault; its words may hold what was sent."""
    while isinstance(exc, BaseExceptionGroup) and exc.exceptions:
        exc = exc.exceptions[0]
    match exc:
        case Unreachable() | ConfigError():
            return str(exc)
        case NoCredential():
            return NO_CREDENTIAL
        case NotSent():
            return exc.why
        case ConnectionLost() | NotStarted():
            return str(exc)
        case ServerError():
            return f"its server refused with error {exc.number}"
        case FileNotFoundError():
            return "there is no such program"
        case PermissionError():
            return "its program may not be run"
    return f"it failed with {type(exc).__name__}"


def cancellation_in(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """That alone: what a connection raises while everything ends is of no interest."""
    left: list[BaseException] = [group]
    while left:
        exc = left.pop()
        if isinstance(exc, BaseExceptionGroup):
            left.extend(exc.exceptions)
        elif isinstance(exc, anyio.get_cancelled_exc_class()):
            return exc
    return group
