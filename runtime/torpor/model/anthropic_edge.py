"""The edge at which whatever a host makes the SDK and its libraries raise becomes one of the engine's errors.

Nothing else of theirs gets beyond it, and no text of it holds what nobody may read.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from torpor.clock import Clock
from torpor.model.anthropic_faults import fault_of
from torpor.model.anthropic_options import AnthropicOptions
from torpor.model.wording import Wording
from torpor.provider_errors import ProviderError, ProviderUnavailable, StreamLost

UNREADABLE: Final = (ValueError, LookupError, ArithmeticError, RecursionError, AssertionError)
"""What reading an answer ends in, here and in the libraries, when its host had something else in mind."""


@contextmanager
def faults_translated(
    options: AnthropicOptions, *, model: str, sdk: Any, wording: Wording, clock: Clock
) -> Iterator[None]:
    """Raises: ProviderError: in place of whatever the SDK and the libraries below it raise.

    Args: model: that is asked.  sdk: the module, loaded.
    """
    httpx = importlib.import_module("httpx2")  # loaded with the SDK
    try:
        yield
    except (ProviderError, sdk.AnthropicError, httpx.HTTPError, TimeoutError, *UNREADABLE) as exc:
        if isinstance(exc, sdk.APIStatusError):
            answer = exc.response
            told = {"status": answer.status_code, "body": answer.content, "headers": answer.headers}
            fault = fault_of(**told, model=model, now_us=clock.now_us())
        else:
            fault = _fault_from(exc, options, sdk=sdk, httpx=httpx)
        raise fault.worded(wording.told(str(fault))) from exc


def _fault_from(exc: Exception, options: AnthropicOptions, *, sdk: Any, httpx: Any) -> ProviderError:
    url = options.base_url
    match exc:
        case ProviderError():
            return exc
        case sdk.APITimeoutError() if isinstance(exc.__cause__, httpx.ConnectTimeout):
            return ProviderUnavailable(f"{url} cannot be reached within {options.connect_deadline_s:g} s")
        case sdk.APITimeoutError():
            return ProviderUnavailable(f"{url} did not answer within {options.progress_deadline_s:g} s")
        case sdk.APIConnectionError():
            return ProviderUnavailable(f"{url} cannot be reached: {_root(exc)}")
        case sdk.AnthropicError():
            return ProviderUnavailable(f"{url} answered something else: {exc}")
        case httpx.HTTPError():
            return StreamLost(f"the stream broke: {_root(exc)}")
        case TimeoutError():
            return StreamLost(f"no progress within {options.progress_deadline_s:g} s")
        case _:
            return StreamLost(f"the answer of {url} cannot be read: {_root(exc)}")


def _root(exc: BaseException) -> str:
    """The innermost cause in words: the SDK's own say little more than that something failed."""
    while isinstance(cause := exc.__cause__ or exc.__context__, Exception):  # a deadline's cancellation says nothing
        exc = cause
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
