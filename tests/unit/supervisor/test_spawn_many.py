"""Two hundred conversations with three sub-agents each, all at once in one process."""

import gc
from collections import Counter
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from tests.support.census import descriptors
from tests.support.doubles import Gate, Play, PlayedModel, calls, reads, says, use
from tests.support.engine import Engine, running_engine
from tests.support.subagents import asks, begun, ended, later_ids, results_of, spawning, subagent
from torpor.actor.commit import Journal
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.ids import ConversationKey
from torpor.records.terms import Outcome, Usage
from torpor.subagents.collector import Collector
from torpor.subagents.definition import Subagent
from torpor.supervisor.child import Child, ChildJournal
from torpor.supervisor.spawn import CallSpawner, Spawning
from torpor.turn.interpret import Interpreter
from torpor.turn.options import TurnOptions
from torpor.turn.places import FairPlaces

CONVERSATIONS = 200
EACH = 3
PLACES = 4
"""Far fewer than there are conversations that wait for a sub-agent."""
CALLS = CONVERSATIONS * (2 + 2 * EACH)
CROWD = "crowd"
FEW = ("ann", "bob", "cid")
FEW_EACH = 20
KEYS = tuple(
    ConversationKey("acme", FEW[number // FEW_EACH] if number < FEW_EACH * len(FEW) else CROWD, f"c_{number}")
    for number in range(CONVERSATIONS)
)
LONG_S = 300.0
"""For all of it, on a slow machine."""


@pytest.fixture(scope="module", params=["asyncio", pytest.param("trio", marks=pytest.mark.soak)])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The second one in the soak: it takes seconds."""
    return str(request.param)


class Crowd:
    """Counts who is given a place for a model call, and holds every sub-agent until all are at work."""

    def __init__(self) -> None:
        self.places: FairPlaces | None = None
        self.owners = {key.conversation: key.owner for key in KEYS}
        self.grants: list[str] = []
        """Owners in the order in which they got one."""
        self.taken_most = 0
        self.waiting_most = 0
        self.at_work = 0
        self.at_work_most = 0
        self.all_there = Gate()
        self.has_answered = anyio.Event()
        """The last of them all."""
        self._calls = 0

    async def meets(self, arguments: dict[str, Any], context: Any) -> str:
        self.at_work += 1
        self.at_work_most = max(self.at_work_most, self.at_work)
        if self.at_work == CONVERSATIONS * EACH:
            self.all_there.opened.set()
        await self.all_there.passed()
        self.at_work -= 1
        return "all are there"

    def counted(self, first: Play, then: Play) -> Play:
        """``then`` once a tool has answered."""

        async def play(request: ModelRequest, sink: ReplySink) -> ModelReply:
            assert self.places is not None
            seen = self.places.statistics()
            self.taken_most = max(self.taken_most, seen.taken)
            self.waiting_most = max(self.waiting_most, seen.waiting)
            for _ in range(3):
                await anyio.lowlevel.checkpoint()
            last = msgspec.json.decode(request.view.messages())[-1]["content"]
            has_result = any(block["type"] == "tool_result" for block in last)
            reply = await (then if has_result else first)(request, sink)
            usage = Usage(input_tokens=10, output_tokens=1)
            self._calls += 1
            if self._calls == CALLS:
                self.has_answered.set()
            return ModelReply(blocks=reply.blocks, stop_reason=reply.stop_reason, usage=usage)

        return play

    def scout(self) -> Subagent:
        play = self.counted(calls(use("meet", "a")), says("it is there"))
        return subagent(
            "scout", host=PlayedModel([play] * CALLS), tools=[reads("meet", self.meets)], seconds_max=LONG_S
        )


def held() -> Counter[str]:
    """Of what a sub-agent is made of, that is still there."""
    gc.collect()
    kinds = (
        Child,
        Collector,
        Spawning,
        CallSpawner,
        Interpreter,
        Journal,
        MemoryObjectSendStream,
        MemoryObjectReceiveStream,
        ChildJournal,
    )
    return Counter(type(each).__name__ for each in gc.get_objects() if type(each) in kinds)


async def all_slept(engine: Engine) -> None:
    for key in KEYS:
        await engine.rested(key)
        await engine.hibernate(key)
    with anyio.fail_after(LONG_S):
        while any(engine.supervisor.live_status(key) is not None for key in KEYS):
            await anyio.lowlevel.checkpoint()


async def test_six_hundred_at_once_end_all_and_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd()
    host = PlayedModel([crowd.counted(asks(*["scout"] * EACH), says("done"))] * CALLS)
    given = FairPlaces._grant  # the one place where all of them are given out

    def grant(places: FairPlaces, owner: tuple[str, str]) -> None:
        if places.statistics().places == PLACES:
            crowd.grants.append(owner[1])
        given(places, owner)

    monkeypatch.setattr(FairPlaces, "_grant", grant)
    async with running_engine(
        host=host,
        tools=[spawning("scout", seconds=LONG_S)],
        subagents={"scout": crowd.scout()},
        turn=TurnOptions(model_calls_max=PLACES, cancel_grace_s=0.0),
        ids=later_ids(),
    ) as engine:
        crowd.places = engine.parts.places
        tasks, before, opened = len(anyio.get_running_tasks()), held(), descriptors()
        with anyio.fail_after(LONG_S):
            async with anyio.create_task_group() as group:
                for key in KEYS:
                    group.start_soon(engine.post("look", key=key).wait)
            await crowd.has_answered.wait()
        await all_slept(engine)
        assert len(anyio.get_running_tasks()) == tasks
        assert held() == before
        assert descriptors() - opened == Counter()
        statistics = engine.parts.places.statistics()
        assert (statistics.taken, statistics.waiting, statistics.grants) == (0, 0, CALLS)
        assert repr(engine.bus) == "<LocalBus watched=0 live=0>"
        for key in KEYS:
            records = await engine.records(key)
            assert len({each.child for each in begun(records)}) == EACH
            assert [(each.code, each.rounds, each.usage.input_tokens) for each in ended(records)] == [
                ("", 2, 20)
            ] * EACH
            assert [result.outcome for result in results_of(records)] == [Outcome.SUCCEEDED] * EACH
        assert await engine.store.due(now_us=2**62, limit=10) == ()
    assert crowd.at_work_most == CONVERSATIONS * EACH
    assert crowd.taken_most == PLACES
    assert crowd.waiting_most > CONVERSATIONS
    fair(crowd.grants)


def fair(grants: list[str]) -> None:
    """While an owner waits it gets as many places as the crowd, though that has seven times as many calls."""
    calls_of_few = FEW_EACH * (2 + 2 * EACH)
    for owner in FEW:
        assert grants.count(owner) == calls_of_few
    asked_at_first = FEW_EACH * (1 + EACH)  # before all have met, which they wait for
    for owner in FEW:
        met = [place for place, each in enumerate(grants) if each == owner][asked_at_first - 1]
        assert grants[:met].count(CROWD) <= 1.5 * asked_at_first
