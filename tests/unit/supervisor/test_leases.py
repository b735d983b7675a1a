"""Two supervisors over one medium: one writes, the other waits, and whoever lost the lease stops."""

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import Crash, Gate, ManualClock, calls, fails, says, stops_at, use, waits, writes
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, running_engine
from torpor.actor.options import ActorOptions
from torpor.errors import Unavailable
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.ids import ConversationKey
from torpor.records.journal import AttemptStarted, ModelReplied, ToolFinished, TurnFinished
from torpor.store.contract import Lease, Snapshot

NO_SWEEP = msgspec.structs.replace(QUICK, sweep_s=3600.0)
"""One look at the start and never again, so that nothing is renewed."""


async def forgotten(engine: Engine) -> None:
    with anyio.fail_after(DEADLINE_S):
        while engine.supervisor.live_status(KEY) is not None:
            await anyio.lowlevel.checkpoint()


Renew = Callable[[Lease], Awaitable[Lease]]


def on_first_renewal(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, first: Callable[[Renew, Lease], Awaitable[Lease]]
) -> list[int]:
    """Let ``first`` carry out the next renewal; the fences of all that follow."""
    original, fences = engine.store.renew, list[int]()

    async def renew(lease: Lease, *, ttl_s: float, now_us: int) -> Lease:
        fences.append(lease.fence)
        if len(fences) == 1:
            return await first(lambda held: original(held, ttl_s=ttl_s, now_us=now_us), lease)
        return await original(lease, ttl_s=ttl_s, now_us=now_us)

    monkeypatch.setattr(engine.store, "renew", renew)
    return fences


PLAYS = (says("one"), fails(Crash("bug")))


async def next_life(engine: Engine, gate: Gate) -> None:
    """Let the actor crash and the next one take up its turn and stop at ``gate``."""
    await engine.insist("again")
    with anyio.fail_after(DEADLINE_S):
        await gate.reached.wait()


async def lives_on(engine: Engine, gate: Gate, fences: list[int]) -> None:
    """The turn at ``gate`` is not disturbed by what the sweep learns in the meantime."""
    with anyio.fail_after(DEADLINE_S):
        while fences.count(2) < 2:
            await anyio.lowlevel.checkpoint()
    gate.opened.set()
    await engine.rested()
    assert [record.attempt for record in await engine.records_of(AttemptStarted)] == [2]
    assert len(await engine.records_of(TurnFinished)) == 2
    assert set(fences) == {1, 2}


async def test_a_renewal_that_comes_too_late_does_not_end_the_next_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    renewal, model = Gate(), Gate()

    async def late(renew: Renew, lease: Lease) -> Lease:
        await renewal.passed()
        return await renew(lease)

    async with running_engine(*PLAYS, waits(model, says("two"))) as engine:
        await engine.ask("hi")
        fences = on_first_renewal(monkeypatch, engine, late)
        with anyio.fail_after(DEADLINE_S):
            await renewal.reached.wait()
        await next_life(engine, model)
        renewal.opened.set()
        await lives_on(engine, model, fences)


async def test_a_renewal_whose_answer_comes_too_late_does_not_replace_the_next_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewal, model = Gate(), Gate()

    async def late(renew: Renew, lease: Lease) -> Lease:
        renewed = await renew(lease)
        await renewal.passed()
        return renewed

    async with running_engine(*PLAYS, waits(model, says("two"))) as engine:
        await engine.ask("hi")
        fences = on_first_renewal(monkeypatch, engine, late)
        with anyio.fail_after(DEADLINE_S):
            await renewal.reached.wait()
        await next_life(engine, model)
        renewal.opened.set()
        await lives_on(engine, model, fences)


async def test_a_renewal_that_meets_a_released_lease_lets_the_actor_leave_in_peace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewal, leaving = Gate(), Gate()

    async def late(renew: Renew, lease: Lease) -> Lease:
        await renewal.passed()
        return await renew(lease)

    async with running_engine() as engine:
        await engine.ask("hi")
        original = engine.store.release

        async def release(lease: Lease) -> None:
            await original(lease)
            await leaving.passed()

        monkeypatch.setattr(engine.store, "release", release)
        on_first_renewal(monkeypatch, engine, late)
        answers: list[object] = []

        async def hibernate() -> None:
            answers.append(await engine.hibernate())

        async with anyio.create_task_group() as tasks:
            with anyio.fail_after(DEADLINE_S):
                await renewal.reached.wait()
            tasks.start_soon(hibernate)
            await leaving.reached.wait()
            renewal.opened.set()
            await anyio.wait_all_tasks_blocked()
            leaving.opened.set()
        assert answers == [True]


async def test_a_lease_that_is_renewed_is_not_taken_over() -> None:
    clock = ManualClock()
    async with running_engine(clock=clock) as holder:
        await holder.ask("hi")
        for _ in range(3):
            clock.advance(6)
            before = holder.store.data.of(KEY).expires_us
            with anyio.fail_after(DEADLINE_S):
                while holder.store.data.of(KEY).expires_us == before:
                    await anyio.lowlevel.checkpoint()
        async with running_engine(data=holder.store.data, clock=clock, holder="s_2") as other:
            with pytest.raises(Unavailable, match="another server holds the conversation"):
                await other.send("mine now")
            assert other.store.appends == []
        await holder.ask("still mine")


async def test_a_conversation_moves_on_when_its_actor_has_left() -> None:
    async with running_engine() as first:
        await first.ask("hi")
        await first.hibernate()
        async with running_engine(data=first.store.data, holder="s_2") as second:
            await second.ask("hello")
            assert len(await second.records_of(TurnFinished)) == 2


async def test_a_turn_whose_lease_lapsed_is_taken_over_and_the_first_writer_writes_nothing_more() -> None:
    clock, model, tool = ManualClock(), Gate(), Gate()
    plays, tools = [calls(use("pay", "a"))], [writes("pay", stops_at(tool))]
    async with running_engine(*plays, tools=tools, clock=clock, options=NO_SWEEP) as first:
        await first.send("pay")
        await tool.reached.wait()
        clock.advance(11)
        async with running_engine(
            waits(model, says("done")), tools=[writes("pay")], data=first.store.data, clock=clock, holder="s_2"
        ) as second:
            await model.reached.wait()
            await anyio.wait_all_tasks_blocked()
            before = second.store.data.of(KEY).head
            tool.opened.set()
            await forgotten(first)
            assert second.store.data.of(KEY).head == before
            model.opened.set()
            await second.rested()
            assert [record.outcome for record in await second.records_of(ToolFinished)] == ["unknown"]
            assert len(await second.records_of(ModelReplied)) == 2


async def test_a_writer_that_learns_of_its_loss_stops_its_model_call() -> None:
    clock, stopped = ManualClock(), anyio.Event()

    async def until_stopped(request: ModelRequest, sink: ReplySink) -> ModelReply:
        try:
            return await waits(Gate(), says("never"))(request, sink)
        finally:
            stopped.set()

    async with running_engine(until_stopped, clock=clock, options=NO_SWEEP) as first:
        await first.send("hi")
        clock.advance(11)
        async with running_engine(data=first.store.data, clock=clock, holder="s_2") as second:
            await second.rested()
            reply = first.post("more")
            with pytest.raises(Unavailable, match="another server"):
                with anyio.fail_after(DEADLINE_S):
                    await reply.wait()
            assert stopped.is_set()
            await forgotten(first)
            assert len(await second.records_of(TurnFinished)) == 1


async def test_a_writer_that_is_told_of_its_loss_by_a_renewal_stops() -> None:
    clock, gate = ManualClock(), Gate()
    async with running_engine(waits(gate, says("never")), clock=clock) as first:
        await first.send("hi")
        await gate.reached.wait()
        held = first.store.data.of(KEY)
        held.holder, held.fence = "s_2", held.fence + 1
        await forgotten(first)
        assert len(first.store.appends) == 1


async def test_a_snapshot_under_a_lost_lease_is_refused_and_ends_the_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, gate = ManualClock(), Gate()
    always = ActorOptions(snapshot_min_bytes=1, snapshot_share=0.0)
    async with running_engine(clock=clock, options=NO_SWEEP, actor=always) as first:
        original = first.store.put_snapshot

        async def put_snapshot(key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
            await gate.passed()
            await original(key, fence=fence, snapshot=snapshot)

        monkeypatch.setattr(first.store, "put_snapshot", put_snapshot)
        await first.send("hi")
        await gate.reached.wait()
        clock.advance(11)
        async with running_engine(data=first.store.data, clock=clock, holder="s_2") as second:
            await second.ask("hello")
            gate.opened.set()
            await forgotten(first)
            assert second.store.data.of(KEY).snapshot is None
