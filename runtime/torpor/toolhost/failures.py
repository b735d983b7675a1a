"""What a tool raised, as words for the model and a place for the log; nothing of what was said goes into the log."""

import traceback
from pathlib import Path


def cause_of(exc: BaseException) -> BaseException:
    """What a tool raised, out of the groups that its own task groups wrapped around it."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def words_of(cause: BaseException) -> str:
    """Type and message, whatever the message does when it is asked for."""
    message = said_by(cause)
    return f"{type(cause).__name__}: {message}" if message else type(cause).__name__


def said_by(cause: BaseException) -> str:
    """The message alone."""
    try:
        return str(cause)
    except BaseException:  # noqa: BLE001  # the edge to a tool's own code
        return "its message cannot be read"


def place_of(cause: BaseException) -> str:
    """File and line that raised, without anything of the conversation."""
    frames = traceback.extract_tb(cause.__traceback__, limit=-1)
    return f"{Path(frames[0].filename).name}:{frames[0].lineno}" if frames else ""
