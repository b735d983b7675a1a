"""A conversation spoken with the real engine: what it asked its model, byte for byte, and the journal it left.

The assistant says what was recorded, whatever it is shown. Model and summariser are the only doubles: supervisor,
actor, turn loop, folds and in-memory store are the engine's own.
"""

import copy
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from bench.followups.conversations import Conversation
from tests.support.doubles import FakeTool, reads
from tests.support.engine import KEY, Engine, running_engine
from tests.support.recordings import RecordedTurn
from tests.support.request_rules import violations
from torpor.conversation.budget import Profile
from torpor.conversation.summary import CompactionOptions
from torpor.conversation.view import request_body
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.model.scripted import Call, Move, Say, ScriptedModel, ScriptedTurn
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import ContextReplaced, JournalRecord, TurnFailed, TurnFinished
from torpor.toolhost.contract import EarlierBounds, ToolContext
from torpor.toolhost.options import ToolOptions
from torpor.turn.earlier import EarlierTurns

BOUNDLESS: Final = Profile(budget_tokens=1_000_000_000)
"""Of a conversation in which nothing is ever folded."""
_TOOL: Final = "records"
_TURN_S: Final = 900.0
"""For a turn with a fold by a slow model."""
_TOOLS: Final = ToolOptions()
_BOUNDS: Final = EarlierBounds(
    size_bytes=_TOOLS.result_cap_bytes, records_max=_TOOLS.earlier_records_max, deadline_s=_TOOLS.earlier_deadline_s
)


class Request(NamedTuple):
    """One that was sent."""

    turn: int
    body: bytes


class Line(NamedTuple):
    """One line of a conversation, from its first turn."""

    requests: tuple[Request, ...]
    records: tuple[JournalRecord, ...]
    earlier: tuple[str, ...] = ()
    """What ``read_earlier`` answers for each turn, once all is said; empty where nothing was folded."""


class Spoken(NamedTuple):
    """All lines, and what they have in common."""

    common: Line
    """Empty when there is one line only."""
    lines: tuple[Line, ...]

    @property
    def requests(self) -> tuple[Request, ...]:
        """Each once."""
        begin = len(self.common.requests)
        return (*self.common.requests, *(request for line in self.lines for request in line.requests[begin:]))

    @property
    def records(self) -> tuple[JournalRecord, ...]:
        """Each once."""
        begin = len(self.common.records)
        return (*self.common.records, *(record for line in self.lines for record in line.records[begin:]))


NOTHING: Final = Line((), ())


class RecordedAssistant:
    """Implements ``model.contract.Model``: says what was recorded, keeps what it was asked, and judges it strictly."""

    def __init__(self, turns: Sequence[RecordedTurn], *, before: Iterable[Request] = ()) -> None:
        self.turns = turns
        self._script = ScriptedModel(self._played, name="recorded")
        self.requests = list(before)

    def request_fields(self) -> dict[str, Any]:
        return {}

    async def warm(self) -> None: ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        """Raises: AssertionError: a host would refuse the request."""
        body = request_body(request.preamble, request.view, live=request.live)
        found = violations(msgspec.json.decode(body))
        assert not found, f"call {request.call}: {found}"
        self.requests.append(Request(_place(request.call)[0], body))
        return await self._script.reply(request, sink)

    def _played(self, turn: ScriptedTurn) -> Iterable[Move]:
        number, round_ = _place(turn.call)
        reply = self.turns[number - 1].replies[round_ - 1]
        yield Say(reply.text)
        for index in range(len(reply.results)):
            yield Call(_TOOL, {"turn": number, "reply": round_, "index": index})

    def tool(self) -> FakeTool:
        """Answers as it was recorded."""

        async def run(arguments: dict[str, Any], context: ToolContext) -> str:
            del context
            reply = self.turns[arguments["turn"] - 1].replies[arguments["reply"] - 1]
            result: str = reply.results[arguments["index"]]
            return result

        return reads(_TOOL, run)


class User:
    """Implements ``bus.contract.Subscriber``: says something and waits until its turn is over, however long a real
    summariser takes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._over = anyio.Event()
        self.folds: list[ContextReplaced] = []
        engine.bus.subscribe(KEY, self)

    async def ask(self, text: str) -> None:
        """Raises: TimeoutError: the turn does not end."""
        self._over = anyio.Event()
        await self._engine.send(text)
        with anyio.fail_after(_TURN_S):
            await self._over.wait()

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        self.folds.extend(record for record in records if isinstance(record, ContextReplaced))
        if any(isinstance(record, TurnFinished | TurnFailed) for record in records):
            self._over.set()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None: ...

    def on_standing(self, key: ConversationKey) -> None: ...

    def on_gone(self, key: ConversationKey) -> None: ...

    def on_progress(self, key: ConversationKey, progress: Progress) -> None: ...


def _place(call: str) -> tuple[int, int]:
    """Turn and round."""
    turn, round_ = call.split("-")[:2]
    return int(turn), int(round_)


async def spoken(
    conversation: Conversation,
    *,
    profile: Profile = BOUNDLESS,
    summariser: Model | None = None,
    compaction: CompactionOptions | None = None,
) -> Spoken:
    """Say all of it. A line that branches off goes on from what a power cut would have left of the common turns."""
    turns = conversation.turns
    said = range(conversation.common or len(turns))
    assistant = RecordedAssistant(turns)
    offer: dict[str, Any] = {"profile": profile, "summariser": summariser, "compaction": compaction}
    async with running_engine(host=assistant, tools=(assistant.tool(),), **offer) as engine:
        first = await _line(engine, assistant, [turns[place] for place in said])
        image = engine.store.image()
    if not conversation.common:
        return Spoken(NOTHING, (first,))
    lines = []
    for places in conversation.lines:
        asked = [turns[place] for place in places]
        branch = RecordedAssistant([*turns[: conversation.common], *asked], before=first.requests)
        data = copy.deepcopy(image)
        async with running_engine(host=branch, tools=(branch.tool(),), data=data, **offer) as engine:
            lines.append(await _line(engine, branch, asked))
    return Spoken(first, tuple(lines))


async def _line(engine: Engine, assistant: RecordedAssistant, turns: Iterable[RecordedTurn]) -> Line:
    user = User(engine)
    for turn in turns:
        await user.ask(turn.user)
    records, state = await engine.records(), await engine.state()
    if not any(isinstance(record, ContextReplaced) for record in records):
        return Line(tuple(assistant.requests), records)
    earlier = EarlierTurns(KEY, pages=engine.store, state=state)
    numbers = range(1, state.turns + 1)
    read = [await earlier.read(first_turn=each, last_turn=each, offset=0, bounds=_BOUNDS) for each in numbers]
    return Line(tuple(assistant.requests), records, tuple(read))
