"""Spans of an engine: turn → step → model call, tool call or commit.

    invoke_agent receptionist            a turn, from its first step here until its end is durable
    ├─ call_model                        a step
    │  ├─ chat claude-…                  one request to a host
    │  └─ commit                         one append, until it is durable
    └─ run_tools
       └─ execute_tool find_slots      after a restart probe_tool, which asks what became of a call
          └─ invoke_agent scout        a turn of the sub-agent that works for it, with all of the above

Names and attributes are those of OpenTelemetry's conventions for generative AI; what those do not know begins with
``torpor.``. No span holds content: no text, no arguments, no results, no words of an exception. A client sends no trace
context; a turn's span names the messages that it answers.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, cast

import msgspec
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from torpor.conversation.steps import CallModel, Compact, FinishTurn, PrepareTurn, Rest, RunTools, Step
from torpor.errors import TorporError
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.operations.metrics_ports import CANCELLED, UNKNOWN_TOOL, FirstDelta, ModelNames
from torpor.operations.metrics_turns import OUTCOMES
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, SubagentFinished, TurnFailed
from torpor.records.terms import Outcome
from torpor.store.contract import Store, Ticket
from torpor.toolhost.contract import Toolbox, ToolContext, ToolResult, ToolSpec
from torpor.turn.contract import Observer

PROVIDER: Final = "anthropic"
"""The flavour of the requests, whoever answers them."""
STEPS: Final[dict[type[Step], str]] = {
    PrepareTurn: "prepare_turn",
    Compact: "compact",
    CallModel: "call_model",
    RunTools: "run_tools",
    FinishTurn: "finish_turn",
    Rest: "rest",
}
_HASH_BYTES: Final = 8
_KEY_BYTES_MAX: Final = 64

Attributes = dict[str, AttributeValue]
NameOf = Callable[[ConversationKey], str]


def namer(how: str, *, secret: bytes) -> NameOf:
    """How a span names its conversation: ``plain``, ``hashed`` with the secret of the server, or not at all."""
    if how == "plain":
        return lambda key: key.path
    if how == "hashed":
        return lambda key: hashlib.blake2b(
            key.path.encode(), key=secret[:_KEY_BYTES_MAX], digest_size=_HASH_BYTES
        ).hexdigest()
    return lambda _key: ""


class Spans:
    """Implements ``tracing.Tracing``."""

    def __init__(self, tracer: Tracer, *, name_of: NameOf) -> None:
        self._tracer = tracer
        self._name_of = name_of
        self._turns = _LiveTurns()

    def turns(self, observer: Observer) -> Observer:
        return TracedTurns(observer, self._tracer, turns=self._turns, name_of=self._name_of)

    def model(self, model: Model) -> Model:
        return TracedModel(model, self._tracer)

    def toolbox(self, toolbox: Toolbox) -> Toolbox:
        return TracedToolbox(toolbox, self._tracer)

    def store(self, store: Store) -> Store:
        # It answers every call of the contract, most of them by passing on, which types cannot say.
        return cast("Store", TracedStore(store, self._tracer, turns=self._turns))


class _LiveTurns:
    """Spans of turns that have not ended, or whose end is not durable yet."""

    def __init__(self) -> None:
        self._spans: dict[ConversationKey, dict[int, Span]] = {}

    def get(self, key: ConversationKey, turn: int) -> Span | None:
        return self._spans.get(key, {}).get(turn)

    def latest(self, key: ConversationKey) -> Span | None:
        return next(reversed(self._spans[key].values())) if key in self._spans else None

    def put(self, key: ConversationKey, turn: int, span: Span) -> None:
        self._spans.setdefault(key, {})[turn] = span

    def pop(self, key: ConversationKey, turn: int) -> Span | None:
        spans = self._spans.get(key, {})
        span = spans.pop(turn, None)
        if not spans:
            self._spans.pop(key, None)
        return span

    def pop_all(self, key: ConversationKey) -> tuple[Span, ...]:
        return tuple(self._spans.pop(key, {}).values())


class TracedTurns:
    """Implements ``turn.contract.Observer``."""

    def __init__(self, observer: Observer, tracer: Tracer, *, turns: _LiveTurns, name_of: NameOf) -> None:
        self._observer = observer
        self._tracer = tracer
        self._turns = turns
        self._name_of = name_of

    def step(self, key: ConversationKey, step: Step, *, agent: str) -> AbstractContextManager[None]:
        return self._within(key, step, agent=agent)

    def committed(self, key: ConversationKey, records: Sequence[JournalRecord], *, agent: str) -> None:
        self._observer.committed(key, records, agent=agent)
        for record in records:
            outcome = OUTCOMES.get(type(record))
            if outcome is not None and (span := self._turns.pop(key, record.turn)) is not None:
                span.set_attribute("torpor.turn.outcome", outcome)
                if isinstance(record, TurnFailed):
                    _fail(span, record.code)
                span.end()

    def unrecorded(self, key: ConversationKey, record: SubagentFinished) -> None:
        self._observer.unrecorded(key, record)

    def interrupted(self, key: ConversationKey) -> None:
        self._observer.interrupted(key)
        for span in self._turns.pop_all(key):
            _fail(span, "interrupted")
            span.end()

    @contextmanager
    def _within(self, key: ConversationKey, step: Step, *, agent: str) -> Iterator[None]:
        with self._observer.step(key, step, agent=agent):
            if isinstance(step, Rest):
                yield
                return
            turn = self._turns.get(key, step.turn) or self._begun(key, step, agent=agent)
            about = {f"torpor.{name}": getattr(step, name) for name in ("round", "attempt") if hasattr(step, name)}
            if isinstance(step, CallModel) and step.joined:
                about["torpor.messages"] = step.joined
            with _span(self._tracer, STEPS[type(step)], about, parent=turn):
                yield

    def _begun(
        self, key: ConversationKey, step: PrepareTurn | Compact | CallModel | RunTools | FinishTurn, *, agent: str
    ) -> Span:
        about: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.agent.name": agent,
            "torpor.turn": step.turn,
        }
        if name := self._name_of(key):
            about["gen_ai.conversation.id"] = name
        if isinstance(step, PrepareTurn):
            about["torpor.messages"] = step.messages
        else:
            about["torpor.turn.resumed"] = True
        # A sub-agent works within a tool call, which is current. What is current in the task of any other turn has
        # nothing to do with it.
        within = None if key.is_child else otel_context.Context()
        span = self._tracer.start_span(f"invoke_agent {agent}", within, attributes=about)
        self._turns.put(key, step.turn, span)
        return span


class TracedModel:
    """Implements ``model.contract.Model``."""

    def __init__(self, model: Model, tracer: Tracer) -> None:
        self._model = model
        self._tracer = tracer
        self._names = ModelNames()

    def request_fields(self) -> Mapping[str, Any]:
        return self._model.request_fields()

    async def warm(self) -> None:
        await self._model.warm()

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        name = self._names.of(request)
        about: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": name,
            "torpor.call": request.call,
        }
        with _span(self._tracer, f"chat {name}", about, kind=SpanKind.CLIENT) as span:
            reply = await self._model.reply(request, FirstDelta(sink, lambda: span.add_event("torpor.first_delta")))
            usage = reply.usage
            cached = usage.cache_read_input_tokens + usage.cache_creation_input_tokens
            span.set_attributes(
                {
                    "gen_ai.response.model": reply.model or name,
                    "gen_ai.response.id": reply.request_id,
                    "gen_ai.response.finish_reasons": (reply.stop_reason,),
                    "gen_ai.usage.input_tokens": usage.input_tokens + cached,
                    "gen_ai.usage.cache_read.input_tokens": usage.cache_read_input_tokens,
                    "gen_ai.usage.cache_creation.input_tokens": usage.cache_creation_input_tokens,
                    "gen_ai.usage.output_tokens": usage.output_tokens,
                }
            )
            return reply


class TracedToolbox:
    """Implements ``toolhost.contract.Toolbox``."""

    def __init__(self, toolbox: Toolbox, tracer: Tracer) -> None:
        self._toolbox = toolbox
        self._tracer = tracer

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._toolbox.specs()

    def spec(self, name: str) -> ToolSpec | None:
        return self._toolbox.spec(name)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        with self._of_tool("execute_tool", name, context) as span:
            result = await self._toolbox.call(name, arguments, context)
            span.set_attribute("torpor.tool.outcome", result.outcome.value)
            if result.outcome is not Outcome.SUCCEEDED:
                _fail(span, result.outcome.value)
            return result

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        with self._of_tool("probe_tool", name, context):
            return await self._toolbox.probe(name, arguments, context)

    def _of_tool(self, operation: str, name: str, context: ToolContext) -> AbstractContextManager[Span]:
        spec = self._toolbox.spec(name)
        known = name if spec is not None else UNKNOWN_TOOL  # what a model made up is content
        about: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.tool.name": known,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": context.call_id,
        }
        if spec is not None:
            about["torpor.tool.effect"] = spec.effect.value
        return _span(self._tracer, f"{operation} {known}", about)


class TracedStore:
    """Gives appends a span within their turn; whatever else a store is asked goes straight to it."""

    def __init__(self, store: Store, tracer: Tracer, *, turns: _LiveTurns) -> None:
        self._store = store
        self._tracer = tracer
        self._turns = turns

    def append(self, key: ConversationKey, *, records: Sequence[JournalRecord], **rest: Any) -> Ticket:
        parent = trace.get_current_span()
        if not parent.get_span_context().is_valid:
            # The last commit of a turn comes behind its last step, and others from the task beside it.
            turn = self._turns.latest(key)
            if turn is None:
                return self._store.append(key, records=records, **rest)
            parent = turn
        span = self._tracer.start_span(
            "commit", trace.set_span_in_context(parent), attributes={"torpor.records": len(records)}
        )
        return _TracedTicket(self._store.append(key, records=records, **rest), span)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _TracedTicket:
    """Implements ``store.contract.Ticket``."""

    __slots__ = ("_span", "_ticket")

    def __init__(self, ticket: Ticket, span: Span) -> None:
        self._ticket = ticket
        self._span = span

    async def wait(self) -> None:
        try:
            await self._ticket.wait()
        except TorporError as exc:
            if self._span.is_recording():
                _fail(self._span, exc.code)
                self._span.end()
            raise
        if self._span.is_recording():  # the first who hears of it ends it
            self._span.end()


@contextmanager
def _span(
    tracer: Tracer, name: str, about: Attributes, *, parent: Span | None = None, kind: SpanKind = SpanKind.INTERNAL
) -> Iterator[Span]:
    """Current within the block. What ends it is told by its kind alone: words of exceptions may be content."""
    context = trace.set_span_in_context(parent) if parent is not None else None
    span = tracer.start_span(name, context, kind=kind, attributes=about)
    try:
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            yield span
    except TorporError as exc:
        _fail(span, exc.code)
        raise
    except BaseException as exc:
        _fail(span, type(exc).__name__ if isinstance(exc, Exception) else CANCELLED)
        raise
    finally:
        span.end()


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))
