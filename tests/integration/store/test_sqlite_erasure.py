"""What was said in an erased conversation is in none of the files any more, however the rows were laid out before."""

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.support.sample_records import KEY, START_US, opening
from tests.support.writing import put
from torpor.errors import StoreFull
from torpor.records.blocks import text_block
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationCreated, ConversationRenamed, JournalRecord, MessageReceived
from torpor.store.codec import encode_records
from torpor.store.contract import Cause, Snapshot, Store, Tombstone
from torpor.store.options import StoreOptions
from torpor.store.requests import CommitCore, Outcome, Request, Tidy
from torpor.store.sqlite.auditing import open_to_audit
from torpor.store.sqlite.engine import open_sqlite_inline
from torpor.store.sqlite.reader import open_to_read
from torpor.store.tombstones import digest_of

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


async def test_no_byte_of_what_its_sub_agents_wrote_is_left_either(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand, key = await one_of(store)
        below = [key.child("a"), key.child("a").child("b"), key.child("c")]
        for child in below:
            hand.heads[child], hand.secrets[child] = (0, 0), []
            for _ in range(5):
                await hand._append(child)
        alone = below.pop()
        await hand.erase(alone)
        assert list(found_in(tmp_path, hand.secrets[alone])) == []
        assert [row.key for row in await store.children(key, limit=9)] == below
        await hand.erase(key)
        assert [list(found_in(tmp_path, hand.secrets[each])) for each in (key, *below)] == [[], [], []]
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


async def one_of(store: Store, *, seed: int = 1) -> tuple[Hand, ConversationKey]:
    """A conversation with something in it."""
    hand = Hand(store, seed=seed)
    while not hand.heads or not next(iter(hand.heads.values()))[0]:
        await hand.do_something()
    return hand, next(iter(hand.heads))


async def test_an_erasure_that_a_reader_keeps_readable_says_so_until_it_is_settled(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand, key = await one_of(store)
        with open_to_read(tmp_path) as reader:
            reader._db.execute("BEGIN")
            reader.head(key)
            assert (await store.erase(await store.acquire(key, holder="h", ttl_s=9, now_us=START_US))).lingers
            assert not await store.scrubbed()
            assert list(found_in(tmp_path, hand.secrets[key])) != []
        assert await store.scrubbed()
        assert list(found_in(tmp_path, hand.secrets[key])) == []


class FullCore:
    """Refuses to tidy, as a store does that has stopped; carries out everything else."""

    def __init__(self, core: CommitCore) -> None:
        self._core = core

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        outcomes = self._core.commit(requests)
        full = StoreFull("no space left")
        return [full if isinstance(request, Tidy) else done for request, done in zip(requests, outcomes, strict=True)]


async def test_an_erasure_that_happened_is_told_though_the_log_cannot_be_emptied(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS, wrap_core=FullCore) as store:
        _, key = await one_of(store)
        erased = await store.erase(await store.acquire(key, holder="h", ttl_s=9, now_us=START_US))
        assert erased.lingers
        assert await store.describe(key) is None
        assert not await store.scrubbed()


async def test_what_others_write_meanwhile_is_not_what_was_erased(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand, key = await one_of(store)
        other = msgspec.structs.replace(key, owner="somebody else")
        hand.heads[other], hand.secrets[other] = (0, 0), []
        begun = anyio.Event()

        async def write_on() -> None:
            while True:
                await hand._append(other)
                begun.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(write_on)
            await begun.wait()
            lease = await store.acquire(key, holder="h", ttl_s=9, now_us=START_US)
            erased = await store.erase(lease)
            tasks.cancel_scope.cancel()
        assert not erased.lingers
        assert hand.heads[other][0]


async def test_what_a_process_left_in_the_log_when_it_was_killed_is_gone_once_somebody_asks(tmp_path: Path) -> None:
    crashed, opened = tmp_path / "crashed", tmp_path / "opened"
    opened.mkdir()
    async with open_sqlite_inline(opened, options=OPTIONS) as store:
        hand, key = await one_of(store)
        with open_to_read(opened) as reader:  # keeps the log, as a kill before it is emptied would
            reader._db.execute("BEGIN")
            reader.head(key)
            await store.erase(await store.acquire(key, holder="h", ttl_s=9, now_us=START_US))
            shutil.copytree(opened, crashed)
    assert list(found_in(crashed, hand.secrets[key])) != []
    async with open_sqlite_inline(crashed, options=OPTIONS) as store:
        assert await store.describe(key) is None
        assert await store.scrubbed()
        assert list(found_in(crashed, hand.secrets[key])) == []


async def test_a_tombstone_stays_for_each_life_and_names_nobody(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand, key = await one_of(store)
        records, events = hand.heads[key]
        written = encode_records(await store.records_after(key, seq=0, limit=99))
        lease = await store.acquire(key, holder="h", ttl_s=9, now_us=START_US)
        await store.erase(lease, cause=Cause.FORGOTTEN, at_us=7)
        await store.erase(lease, cause=Cause.DELETED, at_us=8)  # nothing is there, so nothing is buried
        hand.heads[key] = (0, 0)
        await hand._append(key)
        await store.erase(lease, cause=Cause.AGE, at_us=9)
        with open_to_audit(tmp_path) as audited:
            first, second = audited.tombstones(key)
            secret = audited.tombstone_secret()
            assert audited.tombstones(msgspec.structs.replace(key, owner="nobody")) == ()
        expected = Tombstone(
            at_us=7,
            cause="forgotten",
            records=records,
            events=events,
            epoch=1,
            digest=digest_of([written], secret=secret),
        )
        assert first == expected
        assert (second.at_us, second.cause, second.epoch) == (9, "age", 2)
        with closing(sqlite3.connect(tmp_path / "torpor.db")) as db:
            rows = repr(db.execute("SELECT * FROM tombstones").fetchall())
        assert key.owner not in rows


async def test_no_tombstone_stays_of_a_sub_agent(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        lease = await store.acquire(KEY, holder="h", ttl_s=9, now_us=START_US)
        for key in (KEY, KEY.child("a"), KEY.child("b")):
            await put(store, msgspec.structs.replace(lease, key=key), opening())
        await store.erase(msgspec.structs.replace(lease, key=KEY.child("a")), cause=Cause.AGE, at_us=7)
        with open_to_audit(tmp_path) as audited:
            assert audited.tombstones(KEY.child("a")) == ()
        await store.erase(lease, at_us=8)
        with open_to_audit(tmp_path) as audited:
            assert audited.tombstones(KEY.child("b")) == ()
            assert [tombstone.records for tombstone in audited.tombstones(KEY)] == [2]


async def test_a_journal_that_cannot_be_read_leaves_a_tombstone_without_a_digest(tmp_path: Path) -> None:
    async with open_sqlite_inline(tmp_path, options=OPTIONS) as store:
        hand, key = await one_of(store)
        with closing(sqlite3.connect(tmp_path / "torpor.db", isolation_level=None)) as db:
            db.execute("UPDATE journal SET records = 'torn'")
        await hand.erase(key)
        with open_to_audit(tmp_path) as audited:
            (tombstone,) = audited.tombstones(key)
            assert tombstone.digest == ""
