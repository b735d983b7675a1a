"""What people do with a conversation as a whole, down to the journal and the list."""

import anyio
import msgspec
import pytest

from tests.support.doubles import fails, says
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.actor.creations import Creations
from torpor.actor.options import ActorOptions
from torpor.errors import (
    ConversationExists,
    TooManyChanges,
    TooManyConversations,
    TorporError,
    UnknownAgent,
    UnknownConversation,
)
from torpor.provider_errors import RequestInvalid
from torpor.records.commands import (
    ArchiveConversation,
    Command,
    CreateConversation,
    RenameConversation,
    SendMessage,
    TellContext,
)
from torpor.records.context import ContextPart, WorkingContext
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    ConversationArchived,
    ConversationCreated,
    ConversationRenamed,
    ConversationUnarchived,
    MessageReceived,
)
from torpor.store.contract import DirectoryRow
from torpor.store.memory_data import MemoryData

RENAME = RenameConversation(principal="ann", title="errands")
ARCHIVE = ArchiveConversation(principal="ann")
UNARCHIVE = ArchiveConversation(principal="ann", is_archived=False)


async def do(engine: Engine, command: Command, *, key: ConversationKey = KEY) -> object:
    with anyio.fail_after(DEADLINE_S):
        return await engine.supervisor.deliver(key, command)


async def row(engine: Engine) -> DirectoryRow:
    found = await engine.store.describe(KEY)
    assert found is not None
    return found


async def test_a_conversation_begins_without_a_message_and_keeps_its_agent_and_title() -> None:
    async with running_engine(agents=("clerk", "cook")) as engine:
        assert await do(engine, CreateConversation(agent="cook", title="dinner")) is True
        (created,) = await engine.records()
        assert isinstance(created, ConversationCreated)
        assert ((await row(engine)).agent, (await row(engine)).title) == ("cook", "dinner")
        await engine.ask("hello")
        assert len(await engine.records_of(ConversationCreated)) == 1


async def test_creating_it_again_for_the_same_agent_changes_nothing() -> None:
    async with running_engine(agents=("clerk", "cook")) as engine:
        for again in (CreateConversation(), CreateConversation(agent="clerk", title="other"), CreateConversation()):
            assert await do(engine, again) is True
        with pytest.raises(ConversationExists, match="with agent 'clerk', not 'cook'"):
            await do(engine, CreateConversation(agent="cook"))
        assert len(await engine.records()) == 1


@pytest.mark.parametrize("named", ["cook", "nobody"])
async def test_a_message_or_a_context_for_another_agent_than_the_conversation_has_is_refused(named: str) -> None:
    async with running_engine(agents=("clerk", "cook")) as engine:
        await do(engine, CreateConversation(agent="clerk"))
        for command in (
            SendMessage(message_id=MessageId("m1"), principal="ann", text="hello", agent=named),
            TellContext(context=WorkingContext(), principal="ann", agent=named),
        ):
            with pytest.raises(ConversationExists, match=f"with agent 'clerk', not '{named}': name no agent"):
                await do(engine, command)
        assert len(await engine.records()) == 1
        await do(engine, SendMessage(message_id=MessageId("m1"), principal="ann", text="hello", agent="clerk"))
        assert len(await engine.records_of(MessageReceived)) == 1


async def test_an_agent_that_is_not_there_creates_nothing() -> None:
    async with running_engine() as engine:
        with pytest.raises(UnknownAgent):
            await do(engine, CreateConversation(agent="cook"))
        assert await engine.store.describe(KEY) is None


async def test_a_title_is_told_once_and_shows_in_the_list() -> None:
    async with running_engine() as engine:
        heard = engine.watch()
        await do(engine, CreateConversation())
        await do(engine, RENAME)
        await do(engine, RENAME)
        await do(engine, msgspec.structs.replace(RENAME, title=""))
        assert [record.title for record in heard.of(ConversationRenamed)] == ["errands", ""]
        assert (await row(engine)).title == "" == (await engine.state()).title


async def test_an_archived_conversation_is_listed_only_when_asked_for() -> None:
    async with running_engine() as engine:
        await do(engine, CreateConversation())
        await do(engine, ARCHIVE)
        await do(engine, ARCHIVE)
        lists = engine.supervisor.list_conversations
        assert await lists(tenant=None, owner=None, limit=10, with_archived=False) == ()
        (listing,) = await lists(tenant=None, owner=None, limit=10, with_archived=True)
        assert listing.row.is_archived
        await do(engine, UNARCHIVE)
        assert len(await lists(tenant=None, owner=None, limit=10, with_archived=False)) == 1
        assert len(await engine.records_of(ConversationArchived)) == 1


async def test_a_message_takes_a_conversation_out_of_the_archive_in_the_same_commit() -> None:
    async with running_engine() as engine:
        await do(engine, CreateConversation())
        await do(engine, ARCHIVE)
        await do(engine, TellContext(principal="ann", context=WorkingContext(screen=ContextPart(text="home"))))
        assert (await row(engine)).is_archived
        await engine.ask("hello")
        assert not (await row(engine)).is_archived
        kinds = [type(record) for record in await engine.records()]
        place = kinds.index(ConversationUnarchived)
        assert kinds[place + 1] is MessageReceived
        batch = next(held for held in engine.store.data.of(KEY).batches if held.first_seq <= place + 1 <= held.last_seq)
        assert batch.last_seq > place + 1


@pytest.mark.parametrize("command", [RENAME, ARCHIVE, UNARCHIVE])
async def test_what_does_not_exist_can_be_neither_named_nor_archived(command: Command) -> None:
    async with running_engine() as engine:
        with pytest.raises(UnknownConversation):
            await do(engine, command)
        assert await engine.store.describe(KEY) is None


async def test_a_title_can_be_given_while_a_turn_runs_and_outlives_the_process() -> None:
    async with running_engine(says("one")) as engine:
        await engine.send("hello")
        await do(engine, RENAME)
        await do(engine, ARCHIVE)
        await engine.rested()
        data = engine.store.image()
    async with running_engine(data=data) as engine:
        state = await engine.state()
        assert (state.title, state.is_archived) == ("errands", True)


async def test_the_list_marks_a_conversation_whose_last_turn_failed_until_another_begins() -> None:
    async with running_engine(fails(RequestInvalid("no")), says("better")) as engine:
        await engine.ask("hello")
        assert (await row(engine)).is_failed
        await do(engine, RENAME)
        assert (await row(engine)).is_failed
        await engine.ask("again")
        assert not (await row(engine)).is_failed


def limited(engine: Engine, limit: int) -> None:
    engine.lives._parts = msgspec.structs.replace(  # the option is the composition root's to give
        engine.lives._parts, creations=Creations(limit=limit)
    )


BEGINNINGS: dict[str, Command] = {
    "create": CreateConversation(),
    "send": SendMessage(message_id=MessageId("m"), principal="ann", text="hello"),
    "context.update": TellContext(principal="ann", context=WorkingContext(screen=ContextPart(text="home"))),
}


@pytest.mark.parametrize("command", BEGINNINGS.values(), ids=BEGINNINGS)
async def test_an_owner_has_at_most_so_many_conversations(command: Command) -> None:
    async with running_engine() as engine:
        limited(engine, 2)
        for name in ("c_1", "c_2"):
            await do(engine, CreateConversation(), key=ConversationKey("acme", "ann", name))
        third = ConversationKey("acme", "ann", "c_3")
        with pytest.raises(TooManyConversations):
            await do(engine, command, key=third)
        assert await engine.store.describe(third) is None
        await do(engine, command)  # one that is there goes on
        await do(engine, command, key=ConversationKey("acme", "bob", "c_3"))


async def test_of_many_that_begin_at_once_exactly_as_many_as_allowed_do() -> None:
    async with running_engine() as engine:
        limited(engine, 5)
        outcomes: list[str] = []

        async def begin(number: int) -> None:
            try:
                await do(engine, CreateConversation(), key=ConversationKey("acme", "ann", f"c_{number}"))
            except TorporError as refusal:
                outcomes.append(refusal.code)
            else:
                outcomes.append("done")

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(begin, number)
        assert sorted(outcomes) == ["done"] * 5 + ["too_many_conversations"] * 15
        assert await engine.store.count_conversations(tenant="acme", owner="ann", limit=100) == 5


async def test_a_place_that_nobody_took_is_free_again() -> None:
    async with running_engine() as engine:
        limited(engine, 1)
        with pytest.raises(UnknownAgent):
            await do(engine, CreateConversation(agent="cook"))
        other = ConversationKey("acme", "ann", "c_2")
        assert await do(engine, CreateConversation(), key=other) is True


async def test_a_journal_does_not_grow_with_what_is_done_to_and_fro() -> None:
    data = MemoryData()
    async with running_engine(says("hello"), data=data, actor=ActorOptions(changes_max=3)) as engine:
        await do(engine, CreateConversation())
        await do(engine, RENAME)
        await do(engine, ARCHIVE)
        await do(engine, UNARCHIVE)
        before = await engine.records()
        for command in (RenameConversation(principal="ann", title="other"), ARCHIVE):
            with pytest.raises(TooManyChanges, match="was changed 3 times since the last message"):
                await do(engine, command)
        assert await do(engine, RENAME) is True  # it is called that already
        assert await engine.records() == before
    async with running_engine(says("hello"), data=data, actor=ActorOptions(changes_max=3)) as engine:
        with pytest.raises(TooManyChanges):
            await do(engine, ARCHIVE)
        await engine.ask("hello")
        assert await do(engine, ARCHIVE) is True
