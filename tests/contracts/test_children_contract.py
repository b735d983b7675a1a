"""What ``store.contract`` promises of what sub-agents write, over every backend, on both event loops."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.support.sample_records import KEY, START_US, created, message, opening
from tests.support.writing import journal, lease_of, put
from torpor.errors import Fenced
from torpor.records.blocks import tool_result_block
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import JournalRecord, SubagentFinished, ToolFinished
from torpor.records.terms import Outcome
from torpor.store.contract import Cause, Erased, Head, Lease, Store

NEIGHBOUR = msgspec.structs.replace(KEY, conversation=f"{KEY.conversation}0")
"""Its name begins with the other one's, and goes on where a sub-agent's has a slash."""
CHILD, OTHER, GRANDCHILD = KEY.child("a"), KEY.child("b"), KEY.child("a").child("x")


async def write_below(store: Store, lease: Lease, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
    await put(store, msgspec.structs.replace(lease, key=key), records)


async def family(store: Store) -> Lease:
    """A conversation, two sub-agents of it, one of theirs, and a neighbour."""
    await put(store, await lease_of(store, NEIGHBOUR), opening())
    lease = await lease_of(store)
    await put(store, lease, opening())
    for key in (CHILD, OTHER, GRANDCHILD):
        await write_below(store, lease, key, opening(agent="scout"))
    return lease


async def listed(store: Store) -> list[ConversationKey]:
    rows = await store.list_conversations(tenant=None, owner=None, limit=9)
    own = await store.list_conversations(tenant=KEY.tenant, owner=KEY.owner, limit=9, with_archived=False)
    assert [row.key for row in own] == [row.key for row in rows]
    return [row.key for row in rows]


def test_root_of_a_sub_agent_is_the_conversation_it_works_for_in_the_end() -> None:
    assert [key.root for key in (KEY, CHILD, GRANDCHILD)] == [KEY] * 3
    assert [key.is_child for key in (KEY, CHILD, GRANDCHILD)] == [False, True, True]
    assert GRANDCHILD.path == f"{KEY.path}/a/x"


async def test_journal_of_a_sub_agent_is_its_own(store: Store) -> None:
    lease = await family(store)
    await write_below(store, lease, CHILD, [message(3, event=2, text="found")])
    assert (await store.head(CHILD)).seq == 3
    assert [record.seq for record in await journal(store, CHILD)] == [1, 2, 3]
    assert await store.head(KEY) == await store.head(OTHER) == Head(seq=2, event=1, batch_id="b")
    row = await store.describe(CHILD)
    assert row is not None
    assert row.agent == "scout"


async def test_journal_of_a_sub_agent_is_under_the_fence_of_its_conversation(store: Store) -> None:
    lease = await family(store)
    stale = msgspec.structs.replace(lease, fence=lease.fence - 1)
    for key in (CHILD, GRANDCHILD, KEY.child("new")):
        records = opening() if key.conversation.endswith("new") else [message(3, event=2)]
        with pytest.raises(Fenced):
            await write_below(store, stale, key, records)
    assert [row.key for row in await store.children(KEY, limit=9)] == [CHILD, GRANDCHILD, OTHER]
    assert (await store.head(CHILD)).seq == 2


async def test_sub_agents_are_in_no_list_and_in_no_count_but_their_own(store: Store) -> None:
    await family(store)
    assert await listed(store) == [KEY, NEIGHBOUR]
    assert await store.count_conversations(tenant=KEY.tenant, owner=KEY.owner, limit=9) == 2
    assert [row.key for row in await store.children(KEY, limit=9)] == [CHILD, GRANDCHILD, OTHER]
    assert [row.key for row in await store.children(KEY, limit=2)] == [CHILD, GRANDCHILD]
    assert [row.key for row in await store.children(CHILD, limit=9)] == [GRANDCHILD]
    assert await store.children(NEIGHBOUR, limit=9) == ()


async def test_list_goes_on_behind_a_conversation_with_sub_agents(store: Store) -> None:
    await family(store)
    rows = await store.list_conversations(tenant=None, owner=None, limit=9, after=KEY)
    assert [row.key for row in rows] == [NEIGHBOUR]


async def test_old_ones_are_found_by_when_they_were_written_to_last(store: Store) -> None:
    lease = await family(store)
    await write_below(store, lease, OTHER, [message(3, event=2, at_us=START_US + 5)])
    assert await store.old_children(before_us=START_US, limit=9) == ()
    assert await store.old_children(before_us=START_US + 1, limit=9) == (CHILD, GRANDCHILD)
    assert await store.old_children(before_us=START_US + 9, limit=9) == (CHILD, GRANDCHILD, OTHER)
    assert await store.old_children(before_us=START_US + 9, limit=1) == (CHILD,)


async def test_with_a_conversation_goes_all_that_its_sub_agents_wrote(store: Store) -> None:
    lease = await family(store)
    assert await store.erase(lease) == Erased(records=2)
    for key in (KEY, CHILD, OTHER, GRANDCHILD):
        assert await store.head(key) == Head()
        assert await store.describe(key) is None
    assert await store.children(KEY, limit=9) == ()
    assert await listed(store) == [NEIGHBOUR]
    assert (await store.head(NEIGHBOUR)).seq == 2


async def test_a_sub_agent_goes_alone_with_its_own(store: Store) -> None:
    lease = await family(store)
    of_child = msgspec.structs.replace(lease, key=CHILD)
    assert await store.erase(of_child, cause=Cause.AGE) == Erased(records=2)
    assert [row.key for row in await store.children(KEY, limit=9)] == [OTHER]
    assert (await store.head(KEY)).seq == 2
    await write_below(store, lease, CHILD, [created(), message(2, event=1)])
    assert (await store.head(CHILD)).seq == 2


async def test_a_bundle_is_named_by_the_end_of_a_sub_agent_alone(store: Store) -> None:
    lease = await family(store)
    call, handle, other = CallId("call"), "a" * 64, "b" * 64
    block = tool_result_block(call, "long", is_error=False)
    result = ToolFinished(
        seq=3, event=2, call_id=call, name="look", outcome=Outcome.SUCCEEDED, block=block, handle=handle
    )
    await put(store, lease, [result])
    assert not await store.names_bundle(KEY, handle)
    ends = [
        SubagentFinished(
            seq=4 + number,
            event=3 + number,
            call_id=call,
            name="scout",
            child="a",
            outcome=Outcome.SUCCEEDED,
            bundle=bundle,
        )
        for number, bundle in enumerate((handle, "", other, handle))
    ]
    await put(store, lease, ends)
    assert [await store.names_bundle(KEY, each) for each in (handle, other, "", "c" * 64)] == [True, True, False, False]
    assert await store.handles_of(KEY) == (handle, other)
    for elsewhere in (CHILD, NEIGHBOUR, msgspec.structs.replace(KEY, owner="bob")):
        assert not await store.names_bundle(elsewhere, handle)
    await store.erase(lease)
    assert not await store.names_bundle(KEY, handle)


async def test_blobs_of_its_sub_agents_are_those_of_a_conversation(store: Store) -> None:
    lease = await family(store)
    for key, handle in ((CHILD, "a" * 64), (GRANDCHILD, "b" * 64), (OTHER, "a" * 64)):
        call = CallId("call")
        block = tool_result_block(call, "long", is_error=False)
        result = ToolFinished(
            seq=3, event=2, call_id=call, name="look", outcome=Outcome.SUCCEEDED, block=block, handle=handle
        )
        await write_below(store, lease, key, [result])
    assert await store.handles_of(KEY) == ("a" * 64, "b" * 64)
    assert await store.handles_of(CHILD) == ("b" * 64,), "the other one is a sibling's as well"
    assert await store.handles_of(NEIGHBOUR) == ()
