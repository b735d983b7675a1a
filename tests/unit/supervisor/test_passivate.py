"""How many actors live: who makes room, who is turned away, and what a rush is paced by."""

from collections.abc import Iterable

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import Gate, ManualClock, says, waits
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, running_engine
from tests.unit.supervisor.test_room import Gauge
from torpor.errors import Busy, NotNow, Retry
from torpor.records.commands import Receipt, Wake
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import TurnFinished
from torpor.store.contract import Loaded
from torpor.store.in_memory import InMemoryStore
from torpor.store.memory_data import MemoryData
from torpor.turn.options import TurnOptions

STILL = msgspec.structs.replace(QUICK, sweep_s=3_600.0, live_max=2)
"""Nothing happens by itself but at the start."""


def keys(count: int, *, owner: str = "ann") -> list[ConversationKey]:
    return [ConversationKey("acme", owner, f"c_{number}") for number in range(1, count + 1)]


async def live(engine: Engine, of: Iterable[ConversationKey]) -> list[ConversationKey]:
    """Those with an actor, once nothing moves any more."""
    await anyio.wait_all_tasks_blocked()
    return [key for key in of if engine.supervisor.live_status(key) is not None]


async def due(count: int, *, owner: str = "ann") -> MemoryData:
    """Conversations that were cut off in the middle of a turn."""
    gates = [Gate() for _ in range(count)]
    wide = msgspec.structs.replace(QUICK, live_max=count)
    turn = TurnOptions(model_calls_max=count, cancel_grace_s=0.0)
    async with running_engine(*(waits(gate, says("never")) for gate in gates), options=wide, turn=turn) as engine:
        for key, gate in zip(keys(count, owner=owner), gates, strict=True):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        return engine.store.image()


async def test_the_one_that_rested_longest_makes_room_for_one_more() -> None:
    clock = ManualClock()
    first, second, third, fourth = keys(4)
    async with running_engine(options=STILL, clock=clock) as engine:
        for key in (first, second, third):
            await engine.ask("hi", key=key)
            clock.advance(1.0)
        assert await live(engine, keys(4)) == [second, third]
        await engine.ask("more", key=second)
        await engine.ask("hi", key=fourth)
        assert await live(engine, keys(4)) == [second, fourth]
        assert engine.supervisor.statistics().hibernations["lru"] == 2
        await engine.ask("again", key=first)
        assert len(await engine.records_of(TurnFinished, key=first)) == 2


async def test_a_command_that_needs_no_turn_counts_as_use() -> None:
    first, second, third = keys(3)
    async with running_engine(options=STILL) as engine:
        for key in (first, second):
            await engine.ask("hi", key=key)
        await engine.wake(first)
        await engine.ask("hi", key=third)
        assert await live(engine, keys(3)) == [first, third]


async def test_one_that_is_packed_makes_room_before_one_that_is_not() -> None:
    clock = ManualClock()
    first, second, third = keys(3)
    quick = msgspec.structs.replace(QUICK, live_max=2, pack_after_s=5.0)
    async with running_engine(options=quick, clock=clock) as engine:
        await engine.ask("hi", key=first)
        clock.advance(6.0)
        await anyio.sleep(3 * quick.sweep_s)
        await engine.ask("hi", key=second)
        await engine.ask("hi", key=third)
        assert engine.supervisor.live_status(second) is not None
        assert await live(engine, [first]) == []


async def test_one_that_is_watched_may_make_room_and_comes_back_the_same() -> None:
    first, second, third = keys(3)
    async with running_engine(options=STILL) as engine:
        heard = engine.watch(first)
        for key in (first, second, third):
            await engine.ask("hi", key=key)
        assert first not in await live(engine, keys(3))
        before = await engine.state(first)
        await engine.wake(first)
        actor = engine.actor(first)
        assert actor.journal is not None
        assert actor.journal.state == before
        await engine.ask("more", key=first)
        assert len(heard.of(TurnFinished)) == 2


async def test_one_that_runs_never_makes_room_and_one_more_is_busy_with_nothing_recorded() -> None:
    first, second, third = keys(3)
    gates = [Gate(), Gate()]
    async with running_engine(*(waits(gate, says("done")) for gate in gates), options=STILL) as engine:
        for key, gate in zip((first, second), gates, strict=True):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        with pytest.raises(Busy, match=r"server is full .* raise supervisor.live_max") as caught:
            engine.post("hi", key=third, message_id="m")
        assert (caught.value.code, caught.value.retry) == ("busy", Retry.SAFE)
        assert caught.value.retry_after_s
        assert await engine.store.describe(third) is None
        await engine.send("beside it", key=first)
        statistics = engine.supervisor.statistics()
        assert (statistics.refused["live"], statistics.live["running"]) == (1, 2)
        for gate in gates:
            gate.opened.set()
        await engine.rested(second)
        await engine.send("hi", key=third, message_id="m")
        await engine.rested(third)
        assert len(await engine.records_of(TurnFinished, key=third)) == 1


async def test_one_that_is_used_before_it_has_left_stays() -> None:
    first, second, third = keys(3)
    async with running_engine(options=STILL) as engine:
        for key in (first, second):
            await engine.ask("hi", key=key)
        actor = engine.actor(first)
        await engine.store.describe(first)
        reply = engine.post("hi", key=third)
        again = engine.post("and again", key=first)
        with anyio.fail_after(DEADLINE_S):
            await reply.wait()
            await again.wait()
        await engine.rested(first)
        assert engine.actor(first) is actor
        assert engine.supervisor.statistics().hibernations["lru"] == 0


async def test_one_that_is_taking_a_command_does_not_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = keys(3)
    async with running_engine(options=STILL) as engine:
        for key in (first, second):
            await engine.ask("hi", key=key)
        gate, receipt = Gate(), engine.store.receipt

        async def slow(key: ConversationKey, message_id: MessageId) -> Receipt | None:
            if key == first:
                gate.reached.set()
                await gate.opened.wait()
            return await receipt(key, message_id)

        monkeypatch.setattr(engine.store, "receipt", slow)
        reply = engine.post("more", key=first)
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        await engine.wake(second)
        await engine.ask("hi", key=third)
        assert await live(engine, keys(3)) == [first, third]
        gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            await reply.wait()
        await engine.rested(first)


async def test_one_that_could_not_leave_when_it_was_asked_may_make_room_later() -> None:
    first, second, third, fourth = keys(4)
    async with running_engine(options=STILL) as engine:
        for key in (first, second):
            await engine.ask("hi", key=key)
        reply = engine.post("hi", key=third)
        asked, _ = engine.lives._passivation._leaving[engine.actor(first)]
        asked.fail(NotNow(turn=2, deadline_s=0.0))
        with anyio.fail_after(DEADLINE_S):
            await reply.wait()
        await engine.rested(third)
        assert await live(engine, keys(3)) == [first, second, third]
        await engine.ask("hi", key=fourth)
        assert await live(engine, keys(4)) == [first, third, fourth]
        await engine.ask("more", key=third)
        await engine.ask("more", key=fourth)
        await engine.ask("hi", key=second)
        assert first not in await live(engine, keys(4))


async def test_what_came_in_too_many_leaves_at_the_next_look() -> None:
    clock = ManualClock()
    gates = [Gate() for _ in range(3)]
    quick = msgspec.structs.replace(QUICK, live_max=2)
    async with running_engine(*(waits(gate, says("done")) for gate in gates), options=quick, clock=clock) as engine:
        for key, gate in zip(keys(2), gates, strict=False):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        reply = engine.lives._started(keys(3)[2], Wake(), is_guest=False)
        with anyio.fail_after(DEADLINE_S):
            await reply.wait()
            while engine.supervisor.live_status(keys(3)[2]) is not None:
                await anyio.lowlevel.checkpoint()
        for gate in gates:
            gate.opened.set()


async def test_while_memory_is_short_those_at_rest_leave_by_and_by_and_nobody_new_comes() -> None:
    gauge, clock = Gauge(used_bytes=500), ManualClock()
    quick = msgspec.structs.replace(QUICK, memory_max_bytes=1_000)
    gate = Gate()
    async with running_engine(waits(gate, says("done")), options=quick, memory=gauge, clock=clock) as engine:
        busy, *resting = keys(10)
        await engine.send("slowly", key=busy)
        await gate.reached.wait()
        for key in resting:
            await engine.ask("hi", key=key)
        gauge.used = 2_000
        clock.advance(1.0)
        with pytest.raises(Busy, match=r"memory of the server is full .* raise supervisor.memory_max_bytes"):
            engine.post("hi", key=ConversationKey("acme", "ann", "c_11"))
        with anyio.fail_after(DEADLINE_S):
            while await live(engine, resting):
                clock.advance(1.0)
                await anyio.sleep(quick.sweep_s)
        assert engine.supervisor.live_status(busy) is not None
        statistics = engine.supervisor.statistics()
        assert (statistics.hibernations["memory"], statistics.refused["memory"], statistics.memory_bytes) == (
            9,
            1,
            2_000,
        )
        assert gauge.trims > 1
        gauge.used = 900
        clock.advance(1.0)
        await engine.ask("more", key=resting[0])
        gate.opened.set()
        await engine.rested(busy)


async def test_what_those_that_left_gave_back_is_counted_before_further_ones_leave() -> None:
    class Generous(Gauge):
        def trim(self) -> None:
            super().trim()
            self.used = 0

    gauge, clock = Generous(), ManualClock()
    quick = msgspec.structs.replace(QUICK, memory_max_bytes=1_000)
    async with running_engine(options=quick, memory=gauge, clock=clock) as engine:
        await engine.ask("hi")
        gauge.used = 2_000
        clock.advance(1.0)
        with anyio.fail_after(DEADLINE_S):
            while not gauge.trims:
                await anyio.lowlevel.checkpoint()
        assert await live(engine, [KEY]) == [KEY]


async def test_a_server_that_is_short_of_memory_with_nobody_awake_still_serves() -> None:
    quick = msgspec.structs.replace(QUICK, memory_max_bytes=1_000)
    async with running_engine(options=quick, memory=Gauge(used_bytes=2_000)) as engine:
        await engine.ask("hi")
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_what_is_due_waits_for_room_and_goes_on_when_there_is_some() -> None:
    image = await due(5)
    gates = [Gate() for _ in range(5)]
    quick = msgspec.structs.replace(QUICK, live_max=2)
    async with running_engine(*(waits(gate, says("done")) for gate in gates), data=image, options=quick) as engine:
        for gate in gates:
            with anyio.fail_after(DEADLINE_S):
                await gate.reached.wait()
            assert sum(engine.supervisor.statistics().live.values()) <= 2
            gate.opened.set()
        for key in keys(5):
            await engine.rested(key)
            assert len(await engine.records_of(TurnFinished, key=key)) == 1
        assert engine.supervisor.statistics().refused["live"] == 0


class SlowStore:
    """Counts who loads at once; each load waits until all that may be under way are."""

    def __init__(self, patch: pytest.MonkeyPatch, *, together: int) -> None:
        self.order: list[str] = []
        self.most = 0
        self._now = 0
        self._together = together
        self._full = anyio.Event()
        original = InMemoryStore.load

        async def load(store: InMemoryStore, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
            self.order.append(key.owner)
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now >= self._together:
                self._full.set()
            await self._full.wait()
            await anyio.lowlevel.checkpoint()
            self._now -= 1
            return await original(store, key, use_snapshot=use_snapshot)

        patch.setattr(InMemoryStore, "load", load)


async def test_so_many_load_at_once_and_owners_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    eager, ann = keys(20, owner="eager"), keys(2, owner="ann")
    paced = msgspec.structs.replace(QUICK, thaws_max=3)
    async with running_engine(options=paced) as engine:
        for key in (*eager, *ann):
            await engine.ask("hi", key=key)
        image = engine.store.image()
    slow = SlowStore(monkeypatch, together=3)
    async with running_engine(data=image, options=paced) as engine:
        replies = [engine.supervisor.post(key, Wake()) for key in (*eager, *ann)]
        assert engine.supervisor.statistics().live["thawing"] == 22
        with anyio.fail_after(DEADLINE_S):
            for reply in replies:
                await reply.wait()
        assert slow.most == 3
        assert [place for place, owner in enumerate(slow.order) if owner == "ann"] < [3 + 2 * 3]
        statistics = engine.supervisor.statistics()
        assert (statistics.thaws, statistics.waiting_thaws, statistics.live["idle"]) == (22, 0, 22)


@pytest.mark.parametrize("count", [200, pytest.param(2_000, marks=pytest.mark.soak)])
async def test_a_storm_of_thaws_is_paced_and_everybody_who_comes_again_is_served(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    image = await due(20)
    slow = SlowStore(monkeypatch, together=1)
    paced = msgspec.structs.replace(QUICK, thaws_max=8, live_max=50)
    spread = iter(number % 97 / 97 for number in range(10**9))
    told: list[float] = []
    async with running_engine(data=image, options=paced, clock=ManualClock(), chance=lambda: next(spread)) as engine:

        async def asked(key: ConversationKey) -> float | None:
            try:
                await engine.supervisor.deliver(key, Wake())
            except Busy as busy:
                return busy.retry_after_s
            return None

        async def insist(key: ConversationKey) -> None:
            while (wait_s := await asked(key)) is not None:
                told.append(wait_s)
                await anyio.sleep(wait_s / 1_000)

        with anyio.fail_after(30 * DEADLINE_S):
            async with anyio.create_task_group() as tasks:
                for key in keys(count):
                    tasks.start_soon(insist, key)
        for key in keys(20):
            await engine.rested(key)
            assert len(await engine.records_of(TurnFinished, key=key)) == 1
        assert slow.most <= 8
        assert len(told) == engine.supervisor.statistics().refused["live"] >= count - 50
        assert max(told) <= paced.busy_retry_after_max_s
        assert len(set(told[:100])) > 50


async def test_statistics_tell_what_the_actors_do_and_what_waits() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("done")), options=STILL) as engine:
        await engine.send("hi")
        await gate.reached.wait()
        await engine.ask("hi", key=keys(2)[1])
        now = engine.supervisor.statistics()
        assert now.live == {"thawing": 0, "idle": 1, "running": 1, "hibernating": 0}
        assert (now.resting, now.waiting_commands, now.thaws, now.crashes, now.restarts) == (1, 0, 2, 0, 0)
        engine.supervisor.post(KEY, Wake())
        assert engine.supervisor.statistics().waiting_commands == 1
        gate.opened.set()
        await engine.rested()
        await engine.hibernate()
        assert engine.supervisor.statistics().hibernations == {"idle": 0, "lru": 0, "memory": 0, "asked": 1}
