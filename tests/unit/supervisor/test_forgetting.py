"""An owner who is forgotten has nothing left: not what runs, not what begins meanwhile, not what a crash left."""

from typing import Any

import anyio
import pytest

from tests.support.doubles import Gate, says, stops_at, use, writes
from tests.support.doubles import calls as asks
from tests.support.engine import DEADLINE_S, Engine, running_engine
from torpor.errors import JournalCorrupt
from torpor.records.ids import ConversationKey
from torpor.records.journal import TurnCancelled
from torpor.store.contract import Cause, Erased, Lease
from torpor.store.tombstones import path_mark
from torpor.supervisor.contract import Forgotten

BOB = ConversationKey("acme", "bob", "c_1")
NOTHING = Forgotten(conversations=0, records=0, blobs=0, left=0, lingers=False)


def key(number: int) -> ConversationKey:
    return ConversationKey("acme", "ann", f"c_{number}")


async def forget(engine: Engine, *, limit: int = 9, owner: str = "ann") -> Forgotten:
    with anyio.fail_after(DEADLINE_S):
        return await engine.directory.forget(tenant="acme", owner=owner, limit=limit, principal="root")


async def left(engine: Engine) -> list[str]:
    rows = await engine.store.list_conversations(tenant=None, owner=None, limit=99)
    return [f"{row.key.owner}/{row.key.conversation}" for row in rows]


async def test_everything_of_the_owner_goes_and_nothing_of_others() -> None:
    async with running_engine(*[says("yes")] * 3) as engine:
        for each in (key(1), key(2), BOB):
            await engine.ask("hello", key=each)
        heard = engine.watch(key(2))
        records = sum(engine.store.data.of(each).head.seq for each in (key(1), key(2)))
        survey = await engine.directory.survey(tenant="acme", owner="ann")
        assert survey == Forgotten(conversations=2, records=records, blobs=0, left=2, lingers=False)
        assert await forget(engine) == Forgotten(conversations=2, records=records, blobs=0, left=0, lingers=False)
        assert await left(engine) == ["bob/c_1"]
        assert heard.is_gone
        assert engine.directory.statistics().erased["forgotten"] == 2
        assert await forget(engine) == NOTHING
        assert await engine.directory.survey(tenant="acme", owner="ann") == NOTHING


async def test_it_goes_on_where_the_limit_stopped_it() -> None:
    async with running_engine(*[says("yes")] * 3) as engine:
        for number in range(3):
            await engine.ask("hello", key=key(number))
        assert [(row.conversations, row.left) for row in [await forget(engine, limit=2) for _ in range(2)]] == [
            (2, 1),
            (1, 0),
        ]


async def test_a_running_turn_is_cancelled_and_a_write_gets_its_grace() -> None:
    gate = Gate()
    async with running_engine(asks(use("pay", "p_1")), tools=[writes("pay", stops_at(gate))]) as engine:
        heard = engine.watch()
        await engine.send("hello")
        await gate.reached.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forget, engine)
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        assert len(heard.of(TurnCancelled)) == 1
        assert await left(engine) == []


async def test_what_begins_meanwhile_is_told_and_goes_next_time() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        await engine.ask("hello", key=key(1))
        erase = engine.store.erase

        async def begin_another(lease: Lease, **given: Any) -> Erased:
            if lease.key == key(1):
                await engine.ask("hello", key=key(2))
            return await erase(lease, **given)

        engine.store.erase = begin_another  # type: ignore[method-assign]
        assert (await forget(engine)).left == 1
        assert (await forget(engine)).left == 0


async def test_one_that_cannot_be_had_keeps_no_other_one() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        for number in (1, 2):
            await engine.ask("hello", key=key(number))
        erase = engine.store.erase

        async def fail(lease: Lease, **given: Any) -> Erased:
            if lease.key == key(1):
                raise JournalCorrupt(lease.key.path, reason="a page is damaged")
            return await erase(lease, **given)

        engine.store.erase = fail  # type: ignore[method-assign]
        found = await forget(engine)
        assert (found.conversations, found.left) == (1, 1)
        assert engine.directory.statistics().failures == 1


async def test_blobs_that_no_record_names_go_with_the_first_conversation_and_with_the_last() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        for number in (1, 2):
            await engine.ask("hello", key=key(number))
        first = await engine.blobs.put(key(1), b"of a call that a crash cut off")
        others = await engine.blobs.put(BOB, b"another's")
        await engine.directory.delete(key(1), principal="ann")
        assert await engine.blobs.get(key(2), first) is None
        lost = await engine.blobs.put(key(1), b"of another one")
        engine.blobs.let_go(key(1))
        assert (await engine.directory.survey(tenant="acme", owner="ann")).blobs == 1
        assert await forget(engine) == Forgotten(
            conversations=1, records=engine.store.data.tombstones[mark(2)][0].records, blobs=1, left=0, lingers=False
        )
        assert await engine.blobs.get(key(2), lost) is None
        assert await engine.blobs.get(BOB, others) == b"another's"


async def test_blobs_go_though_their_conversations_went_before() -> None:
    async with running_engine() as engine:
        left = await engine.blobs.put(key(1), b"left by a server that was killed just then")
        engine.blobs.let_go(key(1))
        assert (await forget(engine)).blobs == 1
        assert await engine.blobs.get(key(1), left) is None


async def test_a_blob_that_was_gone_before_is_not_counted() -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello", key=key(1))

        async def handles_of(key: ConversationKey) -> tuple[str, ...]:
            return ("0" * 64,)

        engine.store.handles_of = handles_of  # type: ignore[method-assign]
        assert (await engine.directory.survey(tenant="acme", owner="ann")).blobs == 0
        assert (await forget(engine)).blobs == 0


def mark(number: int) -> str:
    return path_mark(key(number), secret=b"")


@pytest.mark.parametrize("cause", [Cause.DELETED, Cause.FORGOTTEN])
async def test_a_tombstone_tells_when_and_why_and_nothing_else(cause: Cause) -> None:
    async with running_engine(says("yes")) as engine:
        await engine.ask("hello", key=key(1))
        head = engine.store.data.of(key(1)).head
        now_us = engine.clock.now_us()
        if cause is Cause.DELETED:
            await engine.directory.delete(key(1), principal="ann")
        else:
            await forget(engine)
        (tombstone,) = engine.store.data.tombstones[mark(1)]
        assert (tombstone.cause, tombstone.records, tombstone.events) == (cause.value, head.seq, head.event)
        assert tombstone.at_us >= now_us
        assert len(tombstone.digest) == 64
        assert "c_1" not in repr(engine.store.data.tombstones)
