"""Ports that count what goes through them, and otherwise hand everything on.

Above: the composition root, which puts them around the ports of an engine, outermost, so that they see what the engine
sees. A model's time is that of the host alone: whoever waits for a free place, before a retry or for a person waits
outside.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import msgspec

from torpor.clock import Clock
from torpor.conversation.view import Preamble
from torpor.errors import TorporError
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.operations import metrics_table as table
from torpor.operations.metrics import Metrics
from torpor.provider_errors import ModelTimedOut, ProviderError
from torpor.records.blocks import Block
from torpor.records.terms import Usage
from torpor.toolhost.contract import Toolbox, ToolContext, ToolResult, ToolSpec

UNKNOWN_TOOL: Final = "unknown"
"""Stands for the names that a model made up."""
CANCELLED: Final = "cancelled"
_NAMES_MAX: Final = 1_000
"""Of preambles whose model is remembered."""


_TOOLS_MAX: Final = 2_000
"""Names of tools that are labels."""
_OF_SERVER_MAX: Final = 100
"""Of these, names that one MCP server came with: it may make up new ones again and again."""


class KnownTools:
    """Names that may be labels: those of tools there are."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._of_servers = Counter[str]()

    def add(self, name: str, *, server: str = "") -> None:
        """Args: server: the MCP server that has it, if any."""
        if name in self._names or len(self._names) >= _TOOLS_MAX or self._of_servers[server] >= _OF_SERVER_MAX:
            return
        self._names.add(name)
        if server:
            self._of_servers[server] += 1

    def label(self, name: str) -> str:
        """``name``, or what stands for one that no tool has."""
        return name if name in self._names else UNKNOWN_TOOL


class ModelNames:
    """The model that a request is for, out of its preamble."""

    def __init__(self) -> None:
        self._by_digest: dict[str, str] = {}

    def of(self, request: ModelRequest) -> str:
        return request.model or self._of_preamble(request.preamble)

    def _of_preamble(self, preamble: Preamble) -> str:
        name = self._by_digest.get(preamble.digest)
        if name is None:
            if len(self._by_digest) >= _NAMES_MAX:
                self._by_digest.clear()
            name = self._by_digest[preamble.digest] = msgspec.json.decode(preamble.body, type=_Named).model
        return name


class _Named(msgspec.Struct):
    model: str = ""


class ModelNumbers:
    """What the models of a server come to."""

    def __init__(self, metrics: Metrics, *, clock: Clock) -> None:
        self.clock = clock
        self.names = ModelNames()
        self.calls = metrics.tally(table.MODEL_CALLS)
        self.seconds = metrics.spread(table.MODEL_SECONDS)
        self.first_delta_seconds = metrics.spread(table.FIRST_DELTA_SECONDS)
        self._tokens = metrics.tally(table.TOKENS)

    def spent(self, model: str, usage: Usage) -> None:
        self._tokens.add(model, "input", by=usage.input_tokens)
        self._tokens.add(model, "cache_read", by=usage.cache_read_input_tokens)
        self._tokens.add(model, "cache_write", by=usage.cache_creation_input_tokens)
        self._tokens.add(model, "output", by=usage.output_tokens)


class CountedModel:
    """Implements ``model.contract.Model``."""

    def __init__(self, model: Model, numbers: ModelNumbers) -> None:
        self._model = model
        self._numbers = numbers

    def request_fields(self) -> Mapping[str, Any]:
        return self._model.request_fields()

    async def warm(self) -> None:
        await self._model.warm()

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        numbers, name = self._numbers, self._numbers.names.of(request)
        began_s, ends_at = numbers.clock.monotonic_s(), anyio.current_effective_deadline()
        heard = FirstDelta(
            sink, lambda: numbers.first_delta_seconds.observe(numbers.clock.monotonic_s() - began_s, name)
        )
        outcome = TorporError.code
        try:
            reply = await self._model.reply(request, heard)
            outcome = "replied"
        except ProviderError as exc:
            outcome = exc.code
            raise
        except anyio.get_cancelled_exc_class():
            outcome = ModelTimedOut.code if anyio.current_time() >= ends_at else CANCELLED
            raise
        finally:
            numbers.calls.add(name, outcome)
            numbers.seconds.observe(numbers.clock.monotonic_s() - began_s, name)
        numbers.spent(name, reply.usage)
        return reply

    def __repr__(self) -> str:
        return f"<CountedModel {self._model!r}>"


class FirstDelta:
    """Implements ``model.contract.ReplySink``: hands on, and tells of the first piece."""

    __slots__ = ("_began", "_sink", "block")

    def __init__(self, sink: ReplySink, began: Callable[[], None]) -> None:
        self._sink = sink
        self._began: Callable[[], None] | None = began
        self.block: Callable[[Block], None] = sink.block

    def text(self, piece: str) -> None:
        if self._began is not None and piece:
            self._began()
            self._began = None
        self._sink.text(piece)


class ToolNumbers:
    """What the tools of a server take."""

    def __init__(self, metrics: Metrics, *, clock: Clock) -> None:
        self.clock = clock
        self.known = KnownTools()
        self.seconds = metrics.spread(table.TOOL_SECONDS)


class CountedToolbox:
    """Implements ``toolhost.contract.Toolbox``. How calls end is counted from their records, see ``metrics_turns``."""

    def __init__(self, toolbox: Toolbox, numbers: ToolNumbers) -> None:
        self._toolbox = toolbox
        self._numbers = numbers
        for spec in toolbox.specs():
            numbers.known.add(spec.name, server=spec.server)

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._toolbox.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self._toolbox.spec(name)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        numbers = self._numbers
        if (spec := self._toolbox.spec(name)) is not None:
            numbers.known.add(name, server=spec.server)  # also one that came after the start
        began_s = numbers.clock.monotonic_s()
        try:
            return await self._toolbox.call(name, arguments, context)
        finally:
            numbers.seconds.observe(numbers.clock.monotonic_s() - began_s, numbers.known.label(name))

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        return await self._toolbox.probe(name, arguments, context)

    def __repr__(self) -> str:
        return f"<CountedToolbox {self._toolbox!r}>"
