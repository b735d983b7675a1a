"""One provider behind one OpenFeature client, in a domain of its own, evaluated synchronously.

The SDK's registry belongs to the process; a domain per evaluator keeps two engines, or two tests, apart. Evaluation is
synchronous since the SDK's asynchronous one turns a cancellation into another exception. Everything here may block for
as long as the provider does, and may be called in any thread. Imports OpenFeature, so whoever needs this module imports
it late.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, cast

from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import EventDetails, ProviderEvent, ProviderEventDetails
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagEvaluationDetails
from openfeature.provider import FeatureProvider
from openfeature.provider.no_op_provider import NoOpProvider

from torpor.conversation.text import clean
from torpor.flags.contract import Decision, FlagContext, defaulted
from torpor.flags.declared import Declarations

_NUMBERS: Final = itertools.count(1)
_WORD_MAX_CHARS: Final = 64
"""Of a variant and of a reason, which go into journals."""
_FAULT_MAX_CHARS: Final = 500
_CHANGES: Final = (ProviderEvent.PROVIDER_CONFIGURATION_CHANGED, ProviderEvent.PROVIDER_STALE)
"""What the provider says when its answers may differ from now on."""

# The SDK logs each fault of a provider with its traceback, which without any handler goes to standard error as it is.
logging.getLogger("openfeature").addHandler(logging.NullHandler())


class Evaluator:
    """Make, ``start``, ``evaluate`` as often as needed, ``stop``."""

    def __init__(self, provider: FeatureProvider, *, changed: Callable[[], None] | None = None) -> None:
        """``changed`` is called on a thread of the SDK, which must not be kept waiting."""
        self._provider = _Watched(provider)
        self._domain = f"torpor-{next(_NUMBERS)}"
        self._client = api.get_client(self._domain)
        self._changed = changed
        self._heard: list[ProviderEvent] = []

    def start(self) -> None:
        """Initialise the provider and wait for it; whatever it raises comes out, and it may become ready later."""
        for event in _CHANGES:
            self._hear(event)
        try:
            api.set_provider_and_wait(cast("FeatureProvider", self._provider), self._domain)
        except Exception:
            self._hear(ProviderEvent.PROVIDER_READY)
            raise

    def evaluate(self, declarations: Declarations, context: FlagContext) -> tuple[tuple[Decision, ...], str]:
        """A decision for each flag, and what went wrong first, empty if nothing did; never raises.

        A flag for which something went wrong has its default and the reason ``ERROR``; one that the provider does not
        know has its default and the reason ``DEFAULT``.
        """
        attributes = {"tenant": context.tenant, "owner": context.owner, "agent": context.agent}
        evaluated = [
            self._evaluated(key, flag.default, EvaluationContext(context.targeting_key, attributes))
            for key, flag in declarations.items()
        ]
        return tuple(decision for decision, _ in evaluated), next((fault for _, fault in evaluated if fault), "")

    def stop(self, *, deadline_s: float) -> bool:
        """Shut the provider down; returns whether it was done in time."""
        for event in self._heard:
            self._client.remove_handler(event, self._told)
        self._heard.clear()
        api.set_provider(NoOpProvider(), self._domain)  # shuts the old one down, in a thread
        return self._provider.gone.wait(deadline_s)

    def _evaluated(self, key: str, default: bool, context: EvaluationContext) -> tuple[Decision, str]:
        try:
            details = self._client.get_boolean_details(key, default, context)
            return _judged(key, default, details)
        # What a provider answers is only said to be of some type, and its hooks fail where the SDK does not expect it.
        except BaseException as exc:  # noqa: BLE001  # the edge to foreign code, in a thread; an exit ends nothing
            return defaulted(key, default=default, reason="ERROR"), told(exc)

    def _hear(self, event: ProviderEvent) -> None:
        if self._changed is not None:
            self._heard.append(event)
            self._client.add_handler(event, self._told)

    def _told(self, _: EventDetails) -> None:
        if self._changed is not None:
            self._changed()


def told(exc: BaseException) -> str:
    """What foreign code raised, for a log; never raises, whatever the exception says of itself."""
    try:
        return clean(f"{type(exc).__name__}: {exc}").text[:_FAULT_MAX_CHARS]
    except Exception:  # noqa: BLE001  # foreign code again
        return type(exc).__name__


def _judged(key: str, default: bool, details: FlagEvaluationDetails[Any]) -> tuple[Decision, str]:
    """The decision and what is wrong with it. Raises: anything, where the details are not what they are said to be."""
    if details.error_code == ErrorCode.FLAG_NOT_FOUND:
        return defaulted(key, default=default, reason="DEFAULT"), ""
    if details.error_code is not None:
        code = _word(getattr(details.error_code, "value", details.error_code))
        fault = clean(f"{code}: {details.error_message}").text[:_FAULT_MAX_CHARS]
        return defaulted(key, default=default, reason="ERROR"), fault
    if not isinstance(details.value, bool):
        return defaulted(key, default=default, reason="ERROR"), f"the value is a {type(details.value).__name__}"
    variant = _word(details.variant) or ("on" if details.value else "off")
    return Decision(key=key, value=details.value, variant=variant, reason=_word(details.reason) or "UNKNOWN"), ""


def _word(value: object) -> str:
    """Clean text that a journal can hold; empty for nothing, and the type's name for what is no word."""
    match value:
        case None:
            return ""
        case Enum():
            return _word(value.value)
        case str():
            return clean(str(value)[:_WORD_MAX_CHARS]).text[:_WORD_MAX_CHARS]
        case int() | float():
            return str(value)[:_WORD_MAX_CHARS]
        case _:
            return type(value).__name__[:_WORD_MAX_CHARS]


class _Watched:
    """A provider that tells when it has been shut down, which the SDK does in a thread that nobody can wait for."""

    def __init__(self, provider: FeatureProvider) -> None:
        self._provider = provider
        self.gone = threading.Event()

    def attach(self, on_emit: Callable[[FeatureProvider, ProviderEvent, ProviderEventDetails], None]) -> None:
        outer = cast("FeatureProvider", self)
        self._provider.attach(lambda _, event, details: on_emit(outer, event, details))

    def shutdown(self) -> None:
        try:
            self._provider.shutdown()
        finally:
            self.gone.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)
