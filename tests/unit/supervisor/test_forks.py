"""A fork begins as its source was before a message, and from there on they have nothing in common."""

import anyio
import msgspec
import pytest

from tests.support.doubles import Gate, says, use, waits, writes
from tests.support.doubles import calls as asks
from tests.support.engine import DEADLINE_S, FORK_RECORDS_MAX, KEY, Engine, running_engine
from torpor.actor.creations import Creations
from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.errors import (
    ConversationDeleted,
    ConversationExists,
    NotForkable,
    Quarantined,
    TooManyConversations,
    UnknownConversation,
)
from torpor.records.commands import ArchiveConversation, CreateConversation, RetractMessage
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationForked, JournalRecord, TurnPrepared
from torpor.records.terms import WhenBusy
from torpor.supervisor.forking import ForkConversation, copied, receipts_of

CREATE = CreateConversation()
INTO = ConversationKey("acme", "ann", "c_2")


def asked(before: str = "", *, into: ConversationKey = INTO, title: str = "") -> ForkConversation:
    return ForkConversation(source=KEY, into=into, before=MessageId(before), title=title, principal="ann")


async def fork(engine: Engine, before: str = "", *, into: ConversationKey = INTO, title: str = "") -> None:
    with anyio.fail_after(DEADLINE_S):
        await engine.forks.fork(asked(before, into=into, title=title))


async def state_before(engine: Engine, turn: int) -> ConversationState:
    """Of the source, when this turn began."""
    records = await engine.records()
    begun = next(record for record in records if isinstance(record, TurnPrepared) and record.turn == turn)
    return fold(ConversationState(), records[: begun.seq - 1])


@pytest.mark.parametrize(("before", "turn"), [("", 3), ("m_3", 3), ("m_2", 2), ("m_1", 1)])
async def test_a_fork_sees_what_its_source_saw_before_the_message(before: str, turn: int) -> None:
    async with running_engine(says("one"), says("two"), says("three"), says("else")) as engine:
        for text in ("first", "second", "third"):
            await engine.ask(text)
        await fork(engine, before)
        made, then = await engine.state(INTO), await state_before(engine, turn)
        assert (made.view, made.notes, made.agent) == (then.view, then.notes, then.agent)
        assert (made.queued, made.turn) == ((), None)
        source = await engine.records()
        await engine.send("other", key=INTO, message_id="n_1")
        await engine.rested(INTO)
        assert await engine.records() == source
        assert (await engine.state(INTO)).turns == turn


async def test_it_names_its_source_and_shows_in_the_list_by_its_title() -> None:
    async with running_engine(says("one")) as engine:
        await engine.ask("first")
        heard = engine.watch(INTO)
        await engine.supervisor.deliver(KEY, ArchiveConversation(principal="ann"))
        await fork(engine, title="otherwise")
        (forked,) = await engine.records_of(ConversationForked, key=INTO)
        assert (forked.source, forked.before, forked.principal) == ("c_1", "m_1", "ann")
        row = await engine.store.describe(INTO)
        assert row is not None
        assert (row.title, row.is_archived, row.due_us) == ("otherwise", False, None)
        assert heard.of(ConversationForked) == [forked]


@pytest.mark.parametrize("is_forked_already", [False, True])
async def test_what_is_quarantined_is_forked_for_operators_only_and_the_copy_is_not(is_forked_already: bool) -> None:
    async with running_engine(says("one"), says("two")) as engine:
        await engine.ask("first")
        if is_forked_already:
            await fork(engine)
        await engine.supervisor.quarantine(KEY, reason="looks odd")
        with pytest.raises(Quarantined, match="looks odd"):
            await fork(engine)
        assert (await engine.store.describe(INTO) is not None) is is_forked_already
        with anyio.fail_after(DEADLINE_S):
            await engine.forks.fork(msgspec.structs.replace(asked(), is_operators=True))
        await engine.send("other", key=INTO, message_id="n_1")
        await engine.rested(INTO)
        row = await engine.store.describe(INTO)
        assert row is not None
        assert row.quarantine == ""


async def test_its_source_is_there_until_the_copy_is_and_is_deleted_then() -> None:
    gate = Gate()
    async with running_engine(says("one")) as engine:
        await engine.ask("first")
        read = engine.store.records_after

        async def slow(
            key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
        ) -> tuple[JournalRecord, ...]:
            await gate.passed()
            return await read(key, seq=seq, limit=limit, size_bytes=size_bytes)

        engine.store.records_after = slow  # type: ignore[method-assign]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(fork, engine)
            await gate.reached.wait()
            begun = engine.directory.begin_delete(KEY, principal="ann")
            await anyio.wait_all_tasks_blocked()
            assert await engine.store.describe(KEY) is not None
            with pytest.raises(ConversationDeleted):
                await fork(engine, into=ConversationKey("acme", "ann", "c_3"))
            gate.opened.set()
        with anyio.fail_after(DEADLINE_S):
            await begun.wait()
        assert await engine.store.describe(KEY) is None
        assert await engine.store.describe(INTO) is not None


async def test_what_waited_is_no_part_of_it() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one")), says("two"), says("three")) as engine:
        await engine.send("first")
        await gate.reached.wait()
        await engine.send("second")
        await engine.send("third")
        gate.opened.set()
        await engine.rested()
        await fork(engine, "m_2")
        (forked,) = await engine.records_of(ConversationForked, key=INTO)
        assert forked.messages == (MessageId("m_2"), MessageId("m_3"))
        state = await engine.state(INTO)
        assert (state.queued, state.turns) == ((), 1)
        assert engine.store.data.of(INTO).due_us is None


async def test_a_message_that_joined_a_turn_is_forked_before_that_turn() -> None:
    gate = Gate()
    async with running_engine(
        says("one"), waits(gate, asks(use("pay", "p_1"))), says("paid"), tools=[writes("pay")]
    ) as engine:
        await engine.ask("first")
        await engine.send("second")
        await gate.reached.wait()
        await engine.send("joins", message_id="m_9", when_busy=WhenBusy.STEER)
        gate.opened.set()
        await engine.rested()
        await fork(engine, "m_9")
        assert (await engine.state(INTO)).view == (await state_before(engine, 2)).view


async def test_asked_for_again_it_changes_nothing_and_another_one_needs_another_id() -> None:
    async with running_engine(says("one"), says("two")) as engine:
        for text in ("first", "second"):
            await engine.ask(text)
        for before in ("m_2", "m_2", ""):
            await fork(engine, before)
        made = await engine.records(INTO)
        with pytest.raises(ConversationExists):
            await fork(engine, "m_1")
        with pytest.raises(ConversationExists):
            await fork(engine, into=KEY)
        assert await engine.records(INTO) == made


async def test_a_turn_that_was_taken_back_is_not_the_last_one() -> None:
    async with running_engine(says("one"), says("two")) as engine:
        for text in ("first", "second"):
            await engine.ask(text)
        await engine.supervisor.deliver(KEY, RetractMessage(principal="ann", message_id=MessageId("m_2")))
        await fork(engine)
        (forked,) = await engine.records_of(ConversationForked, key=INTO)
        assert forked.before == "m_1"


@pytest.mark.parametrize("before", ["m_9", ""])
async def test_without_a_turn_that_took_it_there_is_no_place_to_fork(before: str) -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("one"))) as engine:
        with pytest.raises(UnknownConversation):
            await fork(engine, before)
        await engine.supervisor.deliver(KEY, CREATE)
        with pytest.raises(NotForkable):
            await fork(engine, before)
        assert await engine.store.describe(INTO) is None
        gate.opened.set()


async def test_a_fork_counts_among_the_conversations_of_its_owner() -> None:
    async with running_engine(says("one")) as engine:
        await engine.ask("first")
        engine.forks._creations = Creations(limit=1)
        with pytest.raises(TooManyConversations):
            await fork(engine)


async def test_a_journal_that_is_too_long_is_not_copied() -> None:
    async with running_engine(says("one")) as engine:
        await engine.ask("first")
        engine.forks._records_max = 3
        with pytest.raises(NotForkable, match="more than 3 records"):
            await fork(engine)
    assert FORK_RECORDS_MAX > 3


async def test_a_resend_to_the_fork_of_what_was_copied_is_no_new_message() -> None:
    async with running_engine(says("one"), says("two")) as engine:
        for text in ("first", "second"):
            await engine.ask(text)
        await fork(engine)
        receipt = await engine.send("first", key=INTO, message_id="m_1")
        copy = copied(asked(), await engine.records(), now_us=1)
        assert receipt == msgspec.structs.replace(receipts_of(copy)[MessageId("m_1")], at_us=receipt.at_us)
        assert (await engine.state(INTO)).turns == 1


async def test_the_source_can_be_deleted_and_the_fork_stays_whole() -> None:
    async with running_engine(says("one"), says("two")) as engine:
        for text in ("first", "second"):
            await engine.ask(text)
        await fork(engine)
        made = await engine.records(INTO)
        await engine.directory.delete(KEY, principal="ann")
        assert await engine.records(INTO) == made
