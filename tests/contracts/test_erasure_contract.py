"""What ``store.contract`` promises of taking a conversation away, over every backend, on both event loops."""

from typing import Any

import msgspec
import pytest

from tests.support.sample_records import KEY, created, message, opening, receipt
from tests.support.writing import lease_of, put
from torpor.errors import Fenced, WrongSequence
from torpor.records.blocks import tool_result_block
from torpor.records.ids import CallId, ConversationKey, MessageId
from torpor.records.journal import ToolFinished
from torpor.records.terms import Outcome
from torpor.store.contract import Erased, Head, Job, Snapshot, Store, Timer

OTHER = msgspec.structs.replace(KEY, conversation="c_2")
SOMEBODY_ELSES = msgspec.structs.replace(KEY, owner="somebody else")


async def fill(store: Store, key: ConversationKey = KEY, *, handles: tuple[str, ...] = ()) -> None:
    """Something of everything that can be stored under a key."""
    lease = await lease_of(store, key)
    records: list[Any] = [*opening()]
    for number, handle in enumerate(handles):
        call = CallId(f"call_{number}")
        block = tool_result_block(call, "long", is_error=False)
        seq, event = len(records) + 1, number + 2
        records.append(
            ToolFinished(
                seq=seq, event=event, call_id=call, name="look", outcome=Outcome.SUCCEEDED, block=block, handle=handle
            )
        )
    await store.append(
        key,
        fence=lease.fence,
        expected_seq=0,
        batch_id="b",
        records=records,
        dedupe={MessageId("m_2"): receipt("m_2")},
        due_us=1,
        jobs=[Job(id="j_1", kind="refresh", due_us=1)],
        timers=[Timer(id="t_1", due_us=1)],
    ).wait()
    await store.put_snapshot(key, fence=lease.fence, snapshot=Snapshot(seq=2, version=1, data=b"cache"))
    await store.release(lease)


async def facts_of(store: Store, key: ConversationKey) -> tuple[object, ...]:
    """Every answer that a store gives about a key."""
    return (
        await store.head(key),
        await store.load(key),
        await store.receipt(key, MessageId("m_2")),
        await store.events_after(key, event=0, limit=9),
        await store.records_after(key, seq=0, limit=9),
        await store.jobs(key),
        await store.timers(key),
        await store.describe(key),
        await store.handles_of(key),
        [row.key for row in await store.list_conversations(tenant=key.tenant, owner=key.owner, limit=9)],
        await store.count_conversations(tenant=key.tenant, owner=key.owner, limit=9),
        key in await store.due(now_us=10, limit=9),
    )


async def test_what_was_erased_answers_like_what_never_was(store: Store) -> None:
    never = await facts_of(store, KEY)
    await fill(store, handles=("a" * 64,))
    assert await facts_of(store, KEY) != never
    assert await store.erase(await lease_of(store)) == Erased(records=3)
    assert await facts_of(store, KEY) == never


async def test_other_conversations_keep_everything(store: Store) -> None:
    for key in (KEY, OTHER, SOMEBODY_ELSES):
        await fill(store, key)
    before = await facts_of(store, SOMEBODY_ELSES), await store.load(OTHER)
    await store.erase(await lease_of(store))
    assert (await facts_of(store, SOMEBODY_ELSES), await store.load(OTHER)) == before


async def test_nothing_is_erased_without_the_fence(store: Store) -> None:
    await fill(store)
    lease = await lease_of(store)
    with pytest.raises(Fenced):
        await store.erase(msgspec.structs.replace(lease, fence=lease.fence - 1))
    assert (await store.head(KEY)).seq == 2


async def test_erasing_what_is_not_there_changes_nothing(store: Store) -> None:
    epoch = await store.epoch()
    assert await store.erase(await lease_of(store)) == Erased(records=0)
    assert await store.epoch() == epoch


async def test_an_id_that_is_used_again_begins_another_epoch(store: Store) -> None:
    await fill(store)
    await fill(store, OTHER)
    before = await store.describe(KEY)
    assert before is not None
    assert before.epoch == await store.epoch()
    await store.erase(await lease_of(store))
    await fill(store)
    after, other = await store.describe(KEY), await store.describe(OTHER)
    assert after is not None
    assert other is not None
    assert after.epoch == await store.epoch() > before.epoch == other.epoch


async def test_a_writer_from_before_cannot_go_on(store: Store) -> None:
    await fill(store)
    lease = await lease_of(store)
    await store.erase(lease)
    with pytest.raises((Fenced, WrongSequence)):
        await put(store, lease, [message(3, event=2)])
    assert await store.head(KEY) == Head()


async def test_the_same_lease_may_begin_it_again(store: Store) -> None:
    await fill(store)
    lease = await lease_of(store)
    await store.erase(lease)
    await put(store, lease, [created(title="anew"), message(2, event=1)], dedupe={MessageId("m_2"): receipt("m_2")})
    row = await store.describe(KEY)
    assert row is not None
    assert (row.title, row.head.seq) == ("anew", 2)
    assert (await store.load(KEY)).snapshot is None


async def test_a_blob_that_another_conversation_of_the_owner_names_is_not_its_own(store: Store) -> None:
    await fill(store, handles=("a" * 64, "b" * 64, "a" * 64))
    await fill(store, OTHER, handles=("b" * 64,))
    await fill(store, SOMEBODY_ELSES, handles=("a" * 64,))
    assert await store.handles_of(KEY) == ("a" * 64,)
    assert await store.handles_of(OTHER) == ()
    await store.erase(await lease_of(store))
    assert await store.handles_of(OTHER) == ("b" * 64,)


async def test_blobs_that_no_record_of_the_owner_names_are_told_apart(store: Store) -> None:
    mine, others, strangers, nobodys = (letter * 64 for letter in "abcd")
    await fill(store, handles=(mine,))
    await fill(store, OTHER, handles=(others,))
    await fill(store, SOMEBODY_ELSES, handles=(strangers,))
    asked = (nobodys, strangers, others, mine)
    assert await store.unnamed(KEY, asked) == (strangers, nobodys)
    await store.erase(await lease_of(store))
    assert await store.unnamed(KEY, asked) == (mine, strangers, nobodys)
    many = [f"{number:064x}" for number in range(1_000)]
    assert await store.unnamed(KEY, [others, *many]) == tuple(many)
