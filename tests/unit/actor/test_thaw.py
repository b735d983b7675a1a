"""From store to state: a snapshot saves work and decides nothing; a journal in doubt decides everything."""

from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from tests.support.doubles import START_US
from tests.support.histories import Teller, told
from torpor.actor.thaw import Thawed, thaw
from torpor.conversation.fold import fold
from torpor.conversation.snapshot import SNAPSHOT_VERSION, encode_snapshot
from torpor.conversation.state import ConversationState
from torpor.conversation.view import View
from torpor.errors import JournalCorrupt
from torpor.records.blocks import text_block
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.codec import StoredBatch, encode_records
from torpor.store.contract import Head, Loaded, Snapshot
from torpor.store.in_memory import InMemoryStore
from torpor.store.memory_data import MemoryData

KEY = ConversationKey("acme", "ann", "c_1")
HISTORY: Teller = told(bytes(reversed(range(256))))
"""The first turn behind the middle asks with the view as it is: behind a fold nobody could tell it from another one."""
HISTORY.rest()


@pytest.fixture
async def store() -> AsyncIterator[InMemoryStore]:
    """Holds the whole history, without a snapshot."""
    async with InMemoryStore(MemoryData()) as opened:
        await write(opened, HISTORY.journal)
        yield opened


async def write(store: InMemoryStore, records: Sequence[JournalRecord]) -> None:
    lease = await store.acquire(KEY, holder="s_1", ttl_s=30, now_us=START_US)
    for start in range(0, len(records), 50):
        batch = records[start : start + 50]
        ticket = store.append(
            KEY, fence=lease.fence, expected_seq=start, batch_id=f"b_{start}", records=batch, dedupe={}, due_us=None
        )
        await ticket.wait()


async def keep(store: InMemoryStore, data: bytes, *, seq: int, version: int = SNAPSHOT_VERSION) -> None:
    lease = await store.acquire(KEY, holder="s_1", ttl_s=30, now_us=START_US)
    await store.put_snapshot(KEY, fence=lease.fence, snapshot=Snapshot(seq=seq, version=version, data=data))


def moment_of_rest() -> ConversationState:
    """The state in the middle of the history, between two turns."""
    state = middle = ConversationState()
    for record in HISTORY.journal:
        state = fold(state, [record])
        if state.turn is None and not state.queued and state.seq <= len(HISTORY.journal) // 2:
            middle = state
    assert 0 < middle.seq < len(HISTORY.journal)
    return middle


async def test_a_conversation_that_nobody_wrote_to_is_an_empty_state(store: InMemoryStore) -> None:
    assert await thaw(store, ConversationKey("acme", "ann", "c_2")) == Thawed(state=ConversationState())


async def test_without_a_snapshot_the_whole_journal_is_folded(store: InMemoryStore) -> None:
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state)


async def test_with_a_snapshot_only_the_records_after_it_are_folded(store: InMemoryStore) -> None:
    middle = moment_of_rest()
    await keep(store, encode_snapshot(middle), seq=middle.seq)
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state, snapshot=middle)


async def test_a_snapshot_of_the_head_needs_no_records(store: InMemoryStore) -> None:
    await keep(store, encode_snapshot(HISTORY.state), seq=HISTORY.state.seq)
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state, snapshot=HISTORY.state)


@pytest.mark.parametrize("version", [SNAPSHOT_VERSION - 1, SNAPSHOT_VERSION + 1])
async def test_a_snapshot_of_another_version_is_ignored(store: InMemoryStore, version: int) -> None:
    middle = moment_of_rest()
    await keep(store, encode_snapshot(middle), seq=middle.seq, version=version)
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state)


async def test_a_damaged_snapshot_is_ignored(store: InMemoryStore) -> None:
    middle = moment_of_rest()
    await keep(store, encode_snapshot(middle)[:-1], seq=middle.seq)
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state)


async def test_a_snapshot_of_another_moment_than_it_claims_is_ignored(store: InMemoryStore) -> None:
    middle = moment_of_rest()
    await keep(store, encode_snapshot(middle), seq=middle.seq - 1)
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state)


@pytest.mark.parametrize(
    "changes", [{"view": View().extended("user", [text_block("of another conversation")])}, {"turns": 99}, {"event": 1}]
)
async def test_a_snapshot_that_the_journal_does_not_continue_is_ignored(
    store: InMemoryStore, changes: dict[str, object]
) -> None:
    middle = moment_of_rest()
    await keep(store, encode_snapshot(msgspec.structs.replace(middle, **changes)), seq=middle.seq)
    assert await thaw(store, KEY) == Thawed(state=HISTORY.state)


async def test_a_snapshot_ahead_of_the_journal_proves_lost_records() -> None:
    data = MemoryData()
    async with InMemoryStore(data) as store:
        await write(store, HISTORY.journal)
        await keep(store, encode_snapshot(HISTORY.state), seq=HISTORY.state.seq)
        held = data.of(KEY)
        lost = held.batches.pop()
        held.head = Head(seq=lost.first_seq - 1, event=held.batches[-1].last_event, batch_id="b")
        with pytest.raises(JournalCorrupt, match="snapshot"):
            await thaw(store, KEY)


async def test_records_that_contradict_each_other_are_a_corrupt_journal() -> None:
    data = MemoryData()
    async with InMemoryStore(data) as store:
        await write(store, HISTORY.journal)
        batch = data.of(KEY).batches[0]
        bent = StoredBatch(
            batch.first_seq, batch.last_seq, batch.last_event, batch.records.replace(b'"turn":1', b'"turn":7', 1)
        )
        data.replace_batch(KEY, 0, bent)
        with pytest.raises(JournalCorrupt, match="turn 7"):
            await thaw(store, KEY)


async def test_a_head_that_the_records_do_not_reach_is_a_corrupt_journal() -> None:
    data = MemoryData()
    async with InMemoryStore(data) as store:
        await write(store, HISTORY.journal)
        data.of(KEY).batches.pop()
        with pytest.raises(JournalCorrupt, match="it ends at record"):
            await thaw(store, KEY)


async def test_a_record_lost_in_the_middle_is_a_corrupt_journal() -> None:
    data = MemoryData()
    async with InMemoryStore(data) as store:
        await write(store, HISTORY.journal)
        batch, records = data.of(KEY).batches[0], HISTORY.journal[:50]
        data.replace_batch(
            KEY, 0, StoredBatch(1, batch.last_seq, batch.last_event, encode_records([*records[:10], *records[11:]]))
        )
        with pytest.raises(JournalCorrupt, match="record 11 carries the number 12"):
            await thaw(store, KEY)


class Careless(InMemoryStore):
    """Gives whatever it is told to, as a store without checks of its own would."""

    given = Loaded(head=Head(), snapshot=None, tail=(), tail_bytes=0)

    async def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        return self.given


async def test_lost_records_are_noticed_though_the_store_does_not_look() -> None:
    store = Careless(MemoryData())
    snapshot = Snapshot(seq=HISTORY.state.seq, version=SNAPSHOT_VERSION, data=encode_snapshot(HISTORY.state))
    store.given = Loaded(head=Head(seq=HISTORY.state.seq - 1, event=1), snapshot=snapshot, tail=(), tail_bytes=0)
    with pytest.raises(JournalCorrupt, match="its snapshot stands at record"):
        await thaw(store, KEY)


@pytest.mark.parametrize(("seq", "event"), [(1, 0), (0, 1), (-1, 0)])
async def test_a_head_that_the_fold_does_not_reach_is_noticed_though_the_store_does_not_look(
    seq: int, event: int
) -> None:
    store = Careless(MemoryData())
    head = Head(seq=HISTORY.state.seq + seq, event=HISTORY.state.event + event)
    store.given = Loaded(head=head, snapshot=None, tail=tuple(HISTORY.journal), tail_bytes=0)
    with pytest.raises(JournalCorrupt, match="it folds to record"):
        await thaw(store, KEY)
