"""Stand-ins for what the engine is given: clock, ids, model and tools, each driven by the test.

A model plays what the test laid out, one *play* a call, and echoes the user once nothing is left. Tools are plain
functions behind a ledger that outlives the engine, as the outside world does. ``Crash`` is raised by either to bring
down the actor that asked.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, NamedTuple

import anyio
import anyio.lowlevel
import msgspec

from tests.support.marked import as_sent
from tests.support.request_rules import Violation, violations
from torpor.conversation.state import PAUSED
from torpor.conversation.view import request_body
from torpor.errors import ToolError, ToolRefused, ToolTimedOut, ToolUnknown
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import Block, canonical, text_block
from torpor.records.ids import CallId
from torpor.records.terms import Effect, Outcome, Usage
from torpor.toolhost.contract import ToolContext, ToolResult, ToolSpec
from torpor.turn.places import FairPlaces

START_US = 1_764_500_000_000_000


class Crash(Exception):
    """A bug, as far as the engine can tell."""


def places_of(count: int = 1) -> FairPlaces:
    """Places of which nobody measures the waiting."""
    return FairPlaces(count, monotonic_s=lambda: 0.0)


class ManualClock:
    """Stands still until it is advanced."""

    def __init__(self) -> None:
        self._passed_s = 0.0

    def advance(self, seconds: float) -> None:
        self._passed_s += seconds

    def now_us(self) -> int:
        return START_US + round(self._passed_s * 1_000_000)

    def monotonic_s(self) -> float:
        return self._passed_s


class LoopClock:
    """The event loop's own time; under a virtual clock, virtual."""

    def now_us(self) -> int:
        return START_US + round(anyio.current_time() * 1_000_000)

    def monotonic_s(self) -> float:
        return anyio.current_time()


class CountingIds:
    """0, 1, 2, … as ids."""

    def __init__(self) -> None:
        self._next = 0

    def new_id(self) -> str:
        self._next += 1
        return f"{self._next:016x}"


class Gate:
    """A place where one side waits until the other lets it through."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.opened = anyio.Event()

    async def passed(self) -> None:
        """Say that somebody is here, and wait until it is open."""
        self.reached.set()
        await self.opened.wait()


Play = Callable[[ModelRequest, ReplySink], Awaitable[ModelReply]]
"""One model call."""


def use(name: str, call_id: str, /, **arguments: Any) -> Block:
    """A tool call as a model writes it."""
    return canonical({"type": "tool_use", "id": call_id, "name": name, "input": arguments})


def place(call_id: str) -> str:
    """Where in its reply a call stands, under whatever id the engine keeps it: ``a``, ``b``, ``c``, ..."""
    return chr(ord("a") + int(call_id.rpartition("_")[2]))


def replies(*blocks: Block, stop_reason: str = "end_turn", unusable: dict[int, str] | None = None) -> Play:
    """These blocks, announced to the sink as they are; text in one piece."""

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        for block in blocks:
            head = msgspec.json.decode(block)
            if head["type"] == "text":
                sink.text(head["text"])
            sink.block(block)
        usage = Usage(input_tokens=request.view.size_bytes, output_tokens=sum(map(len, blocks)))
        return ModelReply(blocks=blocks, stop_reason=stop_reason, usage=usage, unusable=unusable or {})

    return play


def says(*pieces: str) -> Play:
    """One text, streamed in these pieces."""

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        for piece in pieces:
            sink.text(piece)
            await anyio.lowlevel.checkpoint()
        sink.block(text_block("".join(pieces)))
        return ModelReply(blocks=(text_block("".join(pieces)),), stop_reason="end_turn")

    return play


def calls(*uses: Block, text: str = "") -> Play:
    """Ask for these tools, after some words or none."""
    return replies(*((text_block(text),) if text else ()), *uses, stop_reason="tool_use")


def waits(gate: Gate, then: Play, *, said: tuple[str, ...] = ()) -> Play:
    """Stream what was ``said``, stop at the gate, and start over with ``then`` once it is open."""

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        for piece in said:
            sink.text(piece)
        await gate.passed()
        return await then(request, sink)

    return play


def fails(error: Exception, *, said: tuple[str, ...] = ()) -> Play:
    """Stream what was ``said`` and raise."""

    async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
        await anyio.lowlevel.checkpoint()
        for piece in said:
            sink.text(piece)
        raise error

    return play


async def echo(request: ModelRequest, sink: ReplySink) -> ModelReply:
    """Repeat the last text of the request."""
    blocks = msgspec.json.decode(request.view.messages())[-1]["content"]
    last = blocks[-1].get("text", "the tools have answered")
    return await says(f"you said: {last}")(request, sink)


class PlayedModel:
    """Implements ``model.contract.Model``; keeps every request and judges it by the strict rules."""

    def __init__(self, plays: Iterable[Play] = ()) -> None:
        self.plays = deque(plays)
        self.requests: list[dict[str, Any]] = []
        self.asked: list[str] = []
        """The model that each request names instead of the preamble's."""
        self.refused: list[Violation] = []
        self._paused: list[list[Any]] = []
        """What it said before each pause; one whose process was killed is asked to go on as well."""

    def request_fields(self) -> dict[str, Any]:
        return {}

    async def warm(self) -> None: ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        body = msgspec.json.decode(request_body(request.preamble, request.view, live=request.live), type=dict[str, Any])
        self.requests.append(body)
        self.asked.append(request.model)
        sent = as_sent(body, request.attached) if request.attached else body
        self.refused.extend(violations(sent, after_pause=self._goes_on(body["messages"][-1]["content"])))
        play = self.plays.popleft() if self.plays else echo
        reply = await play(request, sink)
        if reply.stop_reason == PAUSED:
            self._paused.append([msgspec.json.decode(block) for block in reply.blocks])
        return reply

    def _goes_on(self, content: list[Any]) -> bool:
        return any(content[-len(said) :] == said for said in self._paused)


Run = Callable[[dict[str, Any], ToolContext], Awaitable[ToolResult | str]]
"""The body of a tool: its answer as text when it succeeds."""
Probe = Callable[[ToolContext], Awaitable[ToolResult | None]]


class FakeTool(NamedTuple):
    """A tool as it is offered, and what it does."""

    spec: ToolSpec
    run: Run
    probe: Probe | None


def _tool(
    name: str, effect: Effect, run: Run | None, *, accepts_key: bool = False, probe: Probe | None = None
) -> FakeTool:
    async def answers(arguments: dict[str, Any], context: ToolContext) -> str:
        await anyio.lowlevel.checkpoint()
        return f"{name} did {msgspec.json.encode(arguments).decode()}"

    spec = ToolSpec(
        name=name,
        description=f"The tool {name}.",
        input_schema={"type": "object", "properties": {}},
        effect=effect,
        deadline_s=30.0,
        accepts_key=accepts_key,
        has_probe=probe is not None,
    )
    return FakeTool(spec, run or answers, probe)


def reads(name: str, run: Run | None = None) -> FakeTool:
    return _tool(name, Effect.READ, run)


def writes(name: str, run: Run | None = None, *, accepts_key: bool = False, probe: Probe | None = None) -> FakeTool:
    return _tool(name, Effect.WRITE, run, accepts_key=accepts_key, probe=probe)


def stops_at(gate: Gate, answer: str = "done") -> Run:
    """A body that waits at the gate."""

    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        await gate.passed()
        return answer

    return run


def raises(error: Exception) -> Run:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        await anyio.lowlevel.checkpoint()
        raise error

    return run


class Entry(NamedTuple):
    """One thing that happened to a tool."""

    name: str
    call_id: CallId
    key: str
    what: Literal["started", "ended", "cancelled", "probed"]


class Ledger:
    """What the tools did, whoever asked; outlives the engine."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, name: str, context: ToolContext, what: Literal["started", "ended", "cancelled", "probed"]) -> None:
        self.entries.append(Entry(name, context.call_id, context.idempotency_key, what))

    def of(self, what: str) -> list[str]:
        """Names of the tools to which this happened, in order."""
        return [entry.name for entry in self.entries if entry.what == what]


class FakeToolbox:
    """Implements ``toolhost.contract.Toolbox`` over ``FakeTool``s."""

    def __init__(self, tools: Iterable[FakeTool], *, ledger: Ledger) -> None:
        self.tools = {tool.spec.name: tool for tool in tools}
        self.ledger = ledger

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self.tools[name].spec for name in sorted(self.tools))

    def spec(self, name: str) -> ToolSpec | None:
        return self.tools[name].spec if name in self.tools else None

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        if name not in self.tools:
            return _failed(ToolUnknown(name, known=tuple(self.tools)))
        tool = self.tools[name]
        self.ledger.add(name, context, "started")
        try:
            answer = await tool.run(msgspec.json.decode(arguments), context)
        except ToolRefused as exc:
            return ToolResult(outcome=Outcome.DENIED, text=str(exc))
        except ToolTimedOut as exc:
            outcome = Outcome.UNKNOWN if tool.spec.effect is Effect.WRITE else Outcome.FAILED
            return ToolResult(outcome=outcome, text=str(exc))
        except ToolError as exc:
            return _failed(exc)
        except anyio.get_cancelled_exc_class():
            self.ledger.add(name, context, "cancelled")
            raise
        self.ledger.add(name, context, "ended")
        return answer if isinstance(answer, ToolResult) else ToolResult(outcome=Outcome.SUCCEEDED, text=answer)

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        self.ledger.add(name, context, "probed")
        probe = self.tools[name].probe
        return await probe(context) if probe else None


def _failed(error: ToolError) -> ToolResult:
    return ToolResult(outcome=Outcome.FAILED, text=str(error))
