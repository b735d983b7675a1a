"""A conversation that is deleted leaves nothing, whatever it was doing, and its id may be used again."""

from contextlib import suppress

import anyio
import pytest

from tests.support.doubles import Gate, says, stops_at, use, waits, writes
from tests.support.doubles import calls as asks
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.errors import (
    ConversationDeleted,
    StoreFull,
    StoreUnavailable,
    UnknownConversation,
)
from torpor.records.commands import RenameConversation, TellLiveContext
from torpor.records.ids import ConversationKey
from torpor.records.journal import LiveContextOrdered, TurnCancelled, TurnFinished
from torpor.records.terms import LiveReason
from torpor.store.contract import Cause, Erased, Lease, QuarantineKind
from torpor.store.requests import Erase
from torpor.turn.options import TurnOptions

OTHER = ConversationKey("acme", "ann", "c_2")


async def delete(engine: Engine, key: ConversationKey = KEY) -> None:
    with anyio.fail_after(DEADLINE_S):
        await engine.directory.delete(key, principal="ann")


def is_gone(engine: Engine, key: ConversationKey = KEY) -> bool:
    held = engine.store.data.of(key)
    return not (held.head.seq or held.batches or held.receipts or held.snapshot or held.timers or held.due_us)


@pytest.mark.parametrize("is_asleep", [False, True])
async def test_nothing_is_left_of_a_conversation_at_rest(is_asleep: bool) -> None:
    async with running_engine(says("yes"), says("yes"), says("again")) as engine:
        heard = engine.watch()
        await engine.ask("hello")
        await engine.ask("hello", key=OTHER)
        if is_asleep:
            await engine.hibernate()
        await delete(engine)
        assert is_gone(engine)
        assert heard.is_gone
        assert engine.supervisor.live_status(KEY) is None
        assert not is_gone(engine, OTHER)
        with pytest.raises(UnknownConversation):
            await delete(engine)


async def test_what_was_never_there_cannot_be_deleted() -> None:
    async with running_engine() as engine:
        with pytest.raises(UnknownConversation):
            await delete(engine)
        await engine.wake()  # an actor without a journal is nothing either
        with pytest.raises(UnknownConversation):
            await delete(engine)


async def test_its_id_begins_another_life_with_other_numbers() -> None:
    async with running_engine(says("yes"), says("again")) as engine:
        await engine.ask("hello")
        before = await engine.store.describe(KEY)
        await delete(engine)
        await engine.send("hello", message_id="m_1")
        await engine.rested()
        after = await engine.store.describe(KEY)
        assert before is not None
        assert after is not None
        assert after.epoch > before.epoch
        assert b"yes" not in (await engine.state()).view.messages()


async def test_a_running_turn_is_cancelled_and_a_write_gets_its_grace() -> None:
    gate = Gate()
    async with running_engine(
        asks(use("pay", "p_1")), tools=[writes("pay", stops_at(gate))], turn=TurnOptions(cancel_grace_s=5.0)
    ) as engine:
        heard = engine.watch()
        await engine.send("hello")
        await gate.reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete, engine)
            await anyio.wait_all_tasks_blocked()
            assert not is_gone(engine)
            gate.opened.set()
        assert is_gone(engine)
        assert [record.reason for record in heard.of(TurnCancelled)] == ["deleted"]
        assert heard.is_gone


def erases_behind(engine: Engine, gate: Gate) -> None:
    """The store takes nothing away before the gate is open."""
    erase = engine.store.erase

    async def wait(lease: Lease, *, cause: Cause = Cause.DELETED, at_us: int = 0) -> Erased:
        await gate.passed()
        return await erase(lease, cause=cause, at_us=at_us)

    engine.store.erase = wait  # type: ignore[method-assign]


async def test_commands_that_meet_the_deletion_are_told_of_it_and_begin_nothing() -> None:
    gate = Gate()
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        erases_behind(engine, gate)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete, engine)
            await gate.reached.wait()
            with pytest.raises(ConversationDeleted):
                engine.post("late")
            gate.opened.set()
        assert is_gone(engine)
        assert engine.supervisor.live_status(KEY) is None


async def test_what_is_asked_after_a_deletion_was_begun_meets_it_though_nothing_was_looked_at_yet() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("yes")), says("again")) as engine:
        await engine.send("hello")
        await gate.reached.wait()
        begun = engine.directory.begin_delete(KEY, principal="ann")
        for _ in range(2):
            with pytest.raises(ConversationDeleted):
                engine.post("late")
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(DEADLINE_S):
            await begun.wait()
        assert is_gone(engine)
        gate.opened.set()
        await engine.ask("a new life", key=KEY)
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_where_there_is_nothing_to_delete_the_id_is_free_again_at_once() -> None:
    async with running_engine(says("yes")) as engine:
        begun = engine.directory.begin_delete(KEY, principal="ann")
        with pytest.raises(ConversationDeleted):
            engine.post("hello")
        with pytest.raises(UnknownConversation):
            await begun.wait()
        await engine.ask("hello")
        assert engine.directory.statistics().failures == 0


async def test_a_message_before_the_deletion_goes_with_it_though_it_is_not_written_yet() -> None:
    async with running_engine(says("yes")) as engine:
        reply = engine.post("hello")
        begun = engine.directory.begin_delete(KEY, principal="ann")
        with anyio.fail_after(DEADLINE_S):
            with suppress(UnknownConversation):
                await begun.wait()
            with suppress(ConversationDeleted):
                await reply.wait()
        assert is_gone(engine)


async def test_a_quarantine_that_meets_a_deletion_finds_nothing() -> None:
    gate = Gate()
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        erases_behind(engine, gate)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete, engine)
            await gate.reached.wait()

            async def quarantine() -> None:
                with pytest.raises(UnknownConversation):
                    await engine.supervisor.quarantine(KEY, reason="odd")

            tasks.start_soon(quarantine)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        assert is_gone(engine)
        assert engine.supervisor.statistics().quarantines == 0


async def test_several_that_delete_at_once_are_all_answered() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(delete, engine)
        assert is_gone(engine)


async def test_it_goes_on_when_the_one_who_asked_has_gone() -> None:
    gate = Gate()
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        heard = engine.watch()
        erases_behind(engine, gate)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(delete, engine)
            await gate.reached.wait()
            tasks.cancel_scope.cancel()
        gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            while not heard.is_gone:
                await anyio.lowlevel.checkpoint()
        assert is_gone(engine)


async def test_a_quarantined_conversation_can_be_deleted() -> None:
    async with running_engine(says("yes"), says("again")) as engine:
        await engine.ask("hello")
        await engine.hibernate()
        await engine.store.quarantine(KEY, reason="odd", kind=QuarantineKind.JOURNAL)
        await delete(engine)
        await engine.ask("hello")
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_a_store_that_fails_leaves_it_there_to_be_deleted_again() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")

        async def fail(*_: object, **__: object) -> None:
            raise StoreUnavailable("lost")

        erase, engine.store.erase = engine.store.erase, fail  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreUnavailable):
            await delete(engine)
        engine.store.erase = erase  # type: ignore[method-assign]
        await engine.supervisor.deliver(KEY, RenameConversation(principal="ann", title="still there"))
        await delete(engine)
        assert is_gone(engine)


async def test_who_watches_is_told_though_the_answer_of_the_store_was_lost() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        watching = engine.watch()
        engine.store.core.fail(StoreUnavailable("lost"), applied=True, hits=lambda request: isinstance(request, Erase))
        await delete(engine)
        assert is_gone(engine)
        assert watching.is_gone


async def test_a_deletion_that_happened_is_done_whatever_the_store_says_of_it() -> None:
    async with running_engine(says("yes"), says("again")) as engine:
        await engine.ask("hello")
        watching = engine.watch()
        engine.store.core.fail(StoreFull("no space"), applied=True, hits=lambda request: isinstance(request, Erase))
        await delete(engine)
        assert is_gone(engine)
        assert watching.is_gone
        assert engine.directory.statistics().erased[Cause.DELETED] == 1
        await engine.ask("a new life")


async def test_a_deletion_that_fails_loses_nothing() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello")
        handle = await engine.blobs.put(KEY, b"a long result")
        engine.store.data.of(KEY).handles |= {handle}
        engine.store.core.fail(StoreFull("no space"), hits=lambda request: isinstance(request, Erase))
        with pytest.raises(StoreFull):
            await delete(engine)
        assert not is_gone(engine)
        assert await engine.blobs.get(KEY, handle) == b"a long result"
        await delete(engine)
        assert await engine.blobs.get(KEY, handle) is None


async def test_blobs_that_do_not_go_with_their_conversation_go_when_it_is_deleted_again() -> None:
    async with running_engine(says("yes"), says("yes")) as engine:
        await engine.ask("hello")
        await engine.ask("hello", key=OTHER)
        handle = await engine.blobs.put(KEY, b"a long result")
        engine.store.data.of(KEY).handles |= {handle}
        watching = engine.watch()

        async def fail(*_: object) -> None:
            raise StoreUnavailable("the folder cannot be written")

        remove, engine.blobs.remove = engine.blobs.remove, fail  # type: ignore[method-assign, assignment]
        await delete(engine)
        assert watching.is_gone
        assert is_gone(engine)
        engine.blobs.remove = remove  # type: ignore[method-assign]
        assert await engine.blobs.get(KEY, handle) is not None
        with pytest.raises(UnknownConversation):
            await delete(engine)
        assert await engine.blobs.get(KEY, handle) is None


async def test_blobs_of_an_erasure_that_was_killed_half_way_go_when_it_is_asked_for_again() -> None:
    async with running_engine(says("yes"), says("yes")) as engine:
        await engine.ask("hello")
        await engine.ask("hello", key=OTHER)
        handle, named = [await engine.blobs.put(key, key.path.encode()) for key in (KEY, OTHER)]
        engine.store.data.of(OTHER).handles |= {named}
        for key in (KEY, OTHER):
            await engine.hibernate(key)
            engine.blobs.let_go(key)
        del engine.store.data.conversations[KEY]
        with pytest.raises(UnknownConversation):
            await delete(engine)
        assert await engine.blobs.get(KEY, handle) is None
        assert await engine.blobs.get(OTHER, named) is not None


async def test_blobs_go_unless_another_conversation_names_them() -> None:
    async with running_engine(says("yes"), says("yes")) as engine:
        await engine.ask("hello", key=OTHER)
        engine.store.data.of(KEY).handles |= {
            await engine.blobs.put(KEY, b"mine"),
            await engine.blobs.put(KEY, b"ours"),
        }
        engine.store.data.of(OTHER).handles |= {await engine.blobs.put(OTHER, b"ours")}
        await engine.ask("hello")
        mine, ours = [await engine.blobs.put(KEY, data) for data in (b"mine", b"ours")]
        await delete(engine)
        assert await engine.blobs.get(KEY, mine) is None
        assert await engine.blobs.get(OTHER, ours) == b"ours"


async def test_a_result_that_another_conversation_is_about_to_name_stays() -> None:
    async with running_engine(says("yes"), says("yes")) as engine:
        await engine.ask("hello")
        await engine.ask("hello", key=OTHER)
        handle = await engine.blobs.put(KEY, b"ours")
        engine.store.data.of(KEY).handles |= {handle}
        assert await engine.blobs.put(OTHER, b"ours") == handle
        await delete(engine)
        assert await engine.blobs.get(OTHER, handle) == b"ours"
        await delete(engine, OTHER)
        assert await engine.blobs.get(OTHER, handle) is None


async def test_what_a_job_of_the_life_before_has_to_tell_is_no_news() -> None:
    async with running_engine(says("yes"), says("yes")) as engine:
        for _ in range(2):
            await engine.ask("hello")
            journal = engine.actor(KEY).journal
            assert journal is not None
            journal.add(LiveContextOrdered(job="live-1", reason=LiveReason.HAND, messages=2))
            begun_us = journal.state.created_us
            if not begun_us_before:
                begun_us_before.append(begun_us)
                await delete(engine)
                engine.clock.advance(1.0)  # type: ignore[attr-defined]
        told = TellLiveContext(job="live-1", begun_us=begun_us_before[0], words="what was said before", messages=2)
        await engine.supervisor.deliver(KEY, told)
        assert (await engine.state()).live.block == ()


begun_us_before: list[int] = []


@pytest.fixture(autouse=True)
def nothing_before() -> None:
    begun_us_before.clear()
