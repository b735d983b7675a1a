"""OpenFeature providers that fail, hang and change their minds as a test says."""

import threading
from queue import SimpleQueue
from typing import Any, cast

import anyio.to_thread
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEventDetails
from openfeature.exception import FlagNotFoundError
from openfeature.flag_evaluation import FlagResolutionDetails
from openfeature.provider import AbstractProvider, Metadata

WAIT_S = 20.0
"""For what has to happen; a test that waits this long has failed."""


class PlayedProvider(AbstractProvider):
    """Answers with ``values`` and waits at gates that are closed; raises exceptions, calls what can be called."""

    def __init__(self, values: dict[str, Any]) -> None:
        super().__init__()
        self.values = values
        self.evaluating = _open()
        self.starting = _open()
        self.stopping = _open()
        self.fails_to_start = False
        self.is_shut_down = False
        self._evaluations: SimpleQueue[str | None] = SimpleQueue()

    async def evaluation(self) -> str | None:
        """The targeting key of the next evaluation, from the first one on, begun or yet to come."""
        return await anyio.to_thread.run_sync(lambda: self._evaluations.get(timeout=WAIT_S))

    async def evaluation_of(self, targeting_key: str) -> None:
        """Wait for an evaluation of that owner."""
        while await self.evaluation() != targeting_key:
            pass

    def pending(self) -> bool:
        """Whether evaluations have begun that nobody looked at."""
        return not self._evaluations.empty()

    def change(self, values: dict[str, Any]) -> None:
        """Answer with these from now on, and say so."""
        self.values = values
        self.emit_provider_configuration_changed(ProviderEventDetails(flags_changed=list(values)))

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        self.starting.wait(WAIT_S)
        if self.fails_to_start:
            raise ConnectionError("nobody answers")

    def shutdown(self) -> None:
        self.stopping.wait(WAIT_S)
        self.is_shut_down = True

    def get_metadata(self) -> Metadata:
        return Metadata(name="played")

    def resolve_boolean_details(
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        self._evaluations.put(evaluation_context.targeting_key if evaluation_context else None)
        self.evaluating.wait(WAIT_S)
        if flag_key not in self.values:
            raise FlagNotFoundError(flag_key)
        value = self.values[flag_key]
        if isinstance(value, BaseException):
            raise value
        if callable(value):
            return cast("FlagResolutionDetails[bool]", value())
        return FlagResolutionDetails(value=value, variant="played", reason="TARGETING_MATCH")

    def resolve_string_details(self, flag_key: str, default_value: str, evaluation_context: Any = None) -> Any:
        raise AssertionError("only booleans are asked for")

    def resolve_integer_details(self, flag_key: str, default_value: int, evaluation_context: Any = None) -> Any:
        raise AssertionError("only booleans are asked for")

    def resolve_float_details(self, flag_key: str, default_value: float, evaluation_context: Any = None) -> Any:
        raise AssertionError("only booleans are asked for")

    def resolve_object_details(self, flag_key: str, default_value: Any, evaluation_context: Any = None) -> Any:
        raise AssertionError("only booleans are asked for")


def given(provider: Any) -> Any:
    """A factory of what it is given."""
    return provider


AT_HAND: list[PlayedProvider] = []
"""Where settings name the factory below; values of settings are text and numbers."""


def at_hand() -> PlayedProvider:
    """The provider that a test has laid ready."""
    return AT_HAND[-1]


def exiting() -> Any:
    """A factory that would end the process."""
    raise SystemExit(3)


def refusing() -> Any:
    """A factory that makes nothing."""
    raise LookupError("no account")


def _open() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate
