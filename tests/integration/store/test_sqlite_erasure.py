"""What was said in an erased conversation is in none of the files any more, however the rows were laid out before."""

import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.sample_records import START_US
from torpor.records.blocks import text_block
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationCreated, ConversationRenamed, JournalRecord, MessageReceived
from torpor.store.contract import Snapshot, Store
from torpor.store.options import StoreOptions
from torpor.store.sqlite.auditing import open_to_audit
from torpor.store.sqlite.engine import open_sqlite_inline
from torpor.store.sqlite.reader import open_to_read

OPTIONS = StoreOptions(synchronous="normal")
PROBE_CHARS = 12


def secret(key: ConversationKey, place: object, size: int) -> str:
    """Text that is nowhere else, and that any few characters of it give away."""
    return hashlib.sha256(f"{key.path} {place}".encode()).hexdigest() * (size // 64 + 1)


class Hand:
    """Writes into many conversations at random, and knows everything that it wrote."""

    def __init__(self, store: Store, *, seed: int) -> None:
        self._store = store
        self._rng = random.Random(seed)
        self.heads: dict[ConversationKey, tuple[int, int]] = {}
        self.secrets: dict[ConversationKey, list[str]] = {}
        self._begun = 0

    async def do_something(self) -> None:
        roll = self._rng.random()
        if roll < 0.15 or not self.heads:
            self._begun += 1
            key = ConversationKey("acme", f"owner{self._rng.randrange(3)}", f"c{self._begun}")
            self.heads[key], self.secrets[key] = (0, 0), []
        key = self._rng.choice(list(self.heads))
        if roll > 0.93:
            await self.erase(key)
        elif roll > 0.8 and self.heads[key][0]:
            await self._snapshot(key)
        else:
            await self._append(key)

    async def erase(self, key: ConversationKey) -> None:
        await self._store.erase(await self._store.acquire(key, holder="h", ttl_s=9, now_us=START_US))
        self.heads.pop(key)

    def _secret(self, key: ConversationKey, *sizes: int) -> str:
        written = self.secrets[key]
        written.append(secret(key, len(written), self._rng.choice(sizes)))
        return written[-1]

    async def _snapshot(self, key: ConversationKey) -> None:
        lease = await self._store.acquire(key, holder="h", ttl_s=9, now_us=START_US)
        data = self._secret(key, 10, 300, 3_000, 20_000).encode()
        snapshot = Snapshot(seq=self.heads[key][0], version=1, data=data)
        await self._store.put_snapshot(key, fence=lease.fence, snapshot=snapshot)

    async def _append(self, key: ConversationKey) -> None:
        lease = await self._store.acquire(key, holder="h", ttl_s=9, now_us=START_US)
        before, event = self.heads[key]
        records: list[JournalRecord] = []
        if not before:
            records.append(ConversationCreated(seq=1, at_us=START_US, agent="clerk", title=self._secret(key, 10, 100)))
        for _ in range(self._rng.randrange(1, 4)):
            event += 1
            records.append(self._record(key, seq=before + len(records) + 1, event=event))
        await self._store.append(
            key,
            fence=lease.fence,
            expected_seq=before,
            batch_id="b",
            records=records,
            dedupe={},
            due_us=self._rng.choice((None, 1)),
        ).wait()
        self.heads[key] = (before + len(records), event)

    def _record(self, key: ConversationKey, *, seq: int, event: int) -> JournalRecord:
        if self._rng.random() < 0.1:
            title = self._secret(key, 10, 150)
            return ConversationRenamed(seq=seq, event=event, at_us=START_US, title=title, principal="ann")
        text = self._secret(key, 10, 100, 500, 900, 2_000, 9_000)
        return MessageReceived(
            seq=seq,
            event=event,
            at_us=START_US,
            message_id=MessageId(f"m_{seq}"),
            principal="ann",
            blocks=(text_block(text),),
        )


def found_in(directory: Path, texts: list[str]) -> Iterator[str]:
    """Pieces of the texts that can be read in a file."""
    for file in directory.iterdir():
        held = file.read_bytes()
        for text in texts:
            for start in range(0, 60, PROBE_CHARS):
                if (probe := text[start : start + PROBE_CHARS]).encode() in held:
                    yield f"{file.name}: {probe}"


@pytest.mark.parametrize("seed", range(3))
async def test_no_byte_of_what_was_said_is_left_in_the_files(tmp_path: Path, seed: int) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand = Hand(store, seed=seed)
        for _ in range(250):
            await hand.do_something()
        for key in [*hand.heads][::2]:
            await hand.erase(key)
        erased = [text for key, texts in hand.secrets.items() if key not in hand.heads for text in texts]
        kept = [text for key in hand.heads for text in hand.secrets[key][:1]]
        assert len(erased) > 50
        assert list(found_in(tmp_path, erased)) == []
        assert list(found_in(tmp_path, kept)) != []  # what is looked for can be found
        for key in hand.heads:
            await store.load(key)
    with open_to_audit(tmp_path) as audited:
        assert list(audited.faults()) == []


async def test_a_reader_from_outside_holds_up_the_log_only_while_it_reads(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand = Hand(store, seed=1)
        while not hand.heads or not next(iter(hand.heads.values()))[0]:
            await hand.do_something()
        key = next(iter(hand.heads))
        with open_to_read(tmp_path) as reader:
            reader._db.execute("BEGIN")
            reader.head(key)
            await hand.erase(key)
            assert await store.describe(key) is None
        await store.release(await store.acquire(key, holder="h", ttl_s=9, now_us=START_US))
        await store.head(key)
        assert list(found_in(tmp_path, hand.secrets[key])) == []
