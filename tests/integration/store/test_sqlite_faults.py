"""The commit core on a medium that fails: what is answered, what is written, and how it goes on."""

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import structlog.testing

from tests.support.failing_sqlite import FailingConnection, error, fails_once
from tests.support.sample_records import KEY, conversation, created, message, opening, receipt, requested
from torpor.errors import (
    DuplicateMessage,
    InvariantBroken,
    JournalCorrupt,
    StoreFull,
    StoreGone,
    StoreUnavailable,
    TorporError,
    WrongSequence,
)
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.codec import number_batch
from torpor.store.contract import Head, Snapshot
from torpor.store.options import StoreOptions
from torpor.store.requests import Append, AskHead, Begin, Outcome, PutSnapshot, Quarantine, Tidy, beginning
from torpor.store.sqlite.connection import connect
from torpor.store.sqlite.journal import SqliteCore
from torpor.store.sqlite.migrations import migrate
from torpor.store.sqlite.reader import SqliteReader

FENCE = 1
OPTIONS = StoreOptions(busy_timeout_s=0.05)
EIO = sqlite3.SQLITE_IOERR_FSYNC


class Medium:
    """A database, its core, and a reader that is not affected by the core's faults."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "torpor.db"
        db = connect(self.path, options=OPTIONS)
        migrate(db, path=str(self.path))
        db.execute("UPDATE boot SET number = ?", (FENCE,))
        db.close()
        self.connections: list[FailingConnection] = []
        self.refuse_to_open = False
        self.core = SqliteCore(self.connect, path=self.path)
        self.core.open()
        self.reader = SqliteReader(sqlite3.connect(self.path, isolation_level=None), path=self.path)

    def connect(self) -> sqlite3.Connection:
        if self.refuse_to_open:
            raise error(sqlite3.SQLITE_CANTOPEN, "unable to open database file")
        db = connect(self.path, options=OPTIONS, factory=FailingConnection)
        assert isinstance(db, FailingConnection)
        self.connections.append(db)
        return db

    @property
    def db(self) -> FailingConnection:
        """The core's present connection."""
        return self.connections[-1]

    def commit(self, *requests: Append | Begin | PutSnapshot | AskHead | Quarantine | Tidy) -> list[Outcome]:
        return self.core.commit(requests)

    def journal(self, key: ConversationKey = KEY) -> tuple[JournalRecord, ...]:
        return self.reader.load(key, use_snapshot=False).tail


@pytest.fixture
def medium(tmp_path: Path) -> Iterator[Medium]:
    """An empty database of boot 1."""
    made = Medium(tmp_path)
    yield made
    made.core.close()
    made.reader.close()


def append(
    records: Sequence[JournalRecord] = (), *, key: ConversationKey = KEY, batch_id: str = "b", message_id: str = ""
) -> Append:
    records = records or opening()
    return Append(
        key=key,
        fence=FENCE,
        numbers=number_batch(key, records, expected_seq=records[0].seq - 1),
        batch_id=batch_id,
        records=records,
        dedupe={MessageId(message_id): receipt(message_id)} if message_id else {},
        due_us=None,
        jobs=(),
        timers=(),
    )


def kinds(outcomes: Sequence[Outcome]) -> list[type[object]]:
    return [type(outcome) for outcome in outcomes]


GROUPS: dict[str, tuple[Append | PutSnapshot, ...]] = {
    "a lone append": (append(),),
    "a group": (append(), append(key=conversation(2)), append(key=conversation(3))),
    "a group with a snapshot": (
        append(),
        PutSnapshot(key=KEY, fence=FENCE, snapshot=Snapshot(seq=2, version=1, data=b"x")),
    ),
}


class TestFull:
    def test_a_full_disk_refuses_the_whole_group_writes_nothing_and_works_again_when_there_is_space(
        self, medium: Medium
    ) -> None:
        big = opening(text="x" * 200_000)
        (pages,) = medium.db.execute("PRAGMA page_count").fetchone()
        medium.db.execute(f"PRAGMA max_page_count = {pages + 20}")
        group = (append(key=conversation(2)), append(big), append(key=conversation(3)))
        refused = medium.commit(*group)
        assert kinds(refused) == [StoreFull] * 3
        assert "free some space" in str(refused[0])
        assert kinds(medium.commit(append(big))) == [StoreFull]
        assert medium.commit(AskHead(key=KEY), AskHead(key=conversation(2))) == [Head(), Head()]
        # What fits is still taken: a full disk is refused by append, not by mood.
        assert medium.commit(append(key=conversation(4))) == [None]
        medium.db.execute("PRAGMA max_page_count = 1000000")
        assert medium.commit(*group) == [None] * 3
        assert medium.journal() == big
        assert len(medium.connections) == 1

    def test_a_snapshot_that_does_not_fit_leaves_the_one_before(self, medium: Medium) -> None:
        small, big = Snapshot(seq=2, version=1, data=b"small"), Snapshot(seq=2, version=1, data=b"x" * 200_000)
        assert medium.commit(append(), PutSnapshot(key=KEY, fence=FENCE, snapshot=small)) == [None, None]
        (pages,) = medium.db.execute("PRAGMA page_count").fetchone()
        medium.db.execute(f"PRAGMA max_page_count = {pages + 20}")
        assert kinds(medium.commit(PutSnapshot(key=KEY, fence=FENCE, snapshot=big))) == [StoreFull]
        assert medium.reader.load(KEY).snapshot == small

    def test_a_disk_that_fills_at_the_commit_itself_writes_nothing(self, medium: Medium) -> None:
        medium.db.before = fails_once("COMMIT", sqlite3.SQLITE_FULL, "database or disk is full")
        assert kinds(medium.commit(append(), append(key=conversation(2)))) == [StoreFull, StoreFull]
        assert (medium.journal(), medium.journal(conversation(2))) == ((), ())
        assert medium.commit(append(), append(key=conversation(2))) == [None, None]

    def test_the_log_is_emptied_though_the_neighbours_do_not_fit(self, medium: Medium) -> None:
        assert medium.commit(append(key=conversation(2))) == [None]
        (pages,) = medium.db.execute("PRAGMA page_count").fetchone()
        medium.db.execute(f"PRAGMA max_page_count = {pages + 20}")
        refused, is_empty = medium.commit(append(opening(text="x" * 200_000)), Tidy())
        assert isinstance(refused, StoreFull)
        assert is_empty is True
        assert medium.path.with_name(medium.path.name + "-wal").stat().st_size == 0

    def test_a_log_that_cannot_be_emptied_is_an_answer_and_told_once(self, medium: Medium) -> None:
        def fault(sql: str) -> sqlite3.Error | None:
            is_it = "wal_checkpoint" in sql
            return error(sqlite3.SQLITE_FULL, "database or disk is full") if is_it else None

        medium.db.before = fault
        with structlog.testing.capture_logs() as logs:
            for number in (2, 3, 4):
                assert medium.commit(append(key=conversation(number)), Tidy()) == [None, False]
            medium.db.before = lambda sql: None
            assert medium.commit(Tidy()) == [True]
        told = [entry["event"] for entry in logs]
        assert told == ["store.wal_not_truncated", "store.wal_truncated_again"]


class TestInputOutputErrors:
    @pytest.mark.parametrize("requests", GROUPS.values(), ids=GROUPS)
    def test_a_failed_flush_is_answered_as_unknown_after_the_heads_were_read(
        self, medium: Medium, requests: tuple[Append | PutSnapshot, ...]
    ) -> None:
        medium.db.before = fails_once("COMMIT" if len(requests) > 1 else "INSERT", EIO, "disk I/O error")
        assert set(kinds(medium.commit(*requests))) == {StoreUnavailable}
        assert len(medium.connections) == 2
        assert medium.commit(AskHead(key=KEY)) == [Head()]
        assert medium.commit(*requests) == [None] * len(requests)

    def test_an_append_that_is_found_after_the_failure_is_answered_as_durable(self, medium: Medium) -> None:
        medium.db.after = fails_once("COMMIT", EIO, "disk I/O error")
        group = (append(batch_id="one"), append(key=conversation(2), batch_id="two"), AskHead(key=KEY))
        assert medium.commit(*group) == [None, None, Head(seq=2, event=1, batch_id="one")]
        assert len(medium.connections) == 2
        assert (medium.journal(), medium.journal(conversation(2))) == (opening(), opening())

    def test_a_beginning_that_is_found_after_the_failure_is_answered_as_durable(self, medium: Medium) -> None:
        medium.db.after = fails_once("RELEASE beginning", EIO, "disk I/O error")
        begin = beginning(KEY, opening(), fence=FENCE, batch_id="one", dedupe={})
        assert medium.commit(begin) == [None]
        assert medium.journal() == opening()

    def test_the_log_is_folded_into_the_database_before_anyone_is_answered(self, medium: Medium) -> None:
        medium.commit(append())
        assert medium.journal() == opening()  # the reader's connection keeps the log when the writer's is closed
        log = medium.path.with_name("torpor.db-wal")
        assert log.stat().st_size > 0
        medium.db.before = fails_once("INSERT", EIO, "disk I/O error")
        assert kinds(medium.commit(append([requested(3)]))) == [StoreUnavailable]
        assert log.stat().st_size == 0

    def test_an_append_of_the_same_place_by_another_batch_is_not_taken_for_ours(self, medium: Medium) -> None:
        medium.commit(append(batch_id="theirs"))
        medium.db.before = fails_once("INSERT", EIO, "disk I/O error")
        assert kinds(medium.commit(append(batch_id="ours"))) == [StoreUnavailable]

    def test_while_the_file_cannot_be_opened_everything_is_unknown_and_then_it_goes_on(self, medium: Medium) -> None:
        medium.db.before = fails_once("INSERT", EIO, "disk I/O error")
        medium.refuse_to_open = True
        for _ in range(3):
            assert kinds(medium.commit(append(), AskHead(key=KEY))) == [StoreUnavailable, StoreUnavailable]
        medium.refuse_to_open = False
        assert medium.commit(append(), AskHead(key=KEY)) == [None, Head(seq=2, event=1, batch_id="b")]
        assert medium.journal() == opening()


class TestDamagedPage:
    FILLER = "filler " * 12

    def test_it_fails_the_conversation_on_it_and_no_other_of_the_group(self, tmp_path: Path) -> None:
        medium = Medium(tmp_path)
        keys = [ConversationKey("acme", "ann", f"{self.FILLER}{number:03}") for number in range(60)]
        assert medium.commit(*[append(key=key) for key in keys]) == [None] * 60
        medium.core.close()
        medium.reader.close()
        damage_row_of(medium.path, keys[30])
        medium.core.open()
        group = [append([requested(3)], key=key) for key in (keys[0], keys[30], keys[59])]
        outcomes = medium.commit(*group, AskHead(key=keys[30]), AskHead(key=keys[0]))
        assert kinds(outcomes) == [type(None), JournalCorrupt, type(None), JournalCorrupt, Head]
        assert "the database is damaged" in str(outcomes[1])
        assert len(medium.connections) == 2
        medium.core.close()


def damage_row_of(path: Path, key: ConversationKey) -> None:
    """Spoil the page of the table that holds ``key``'s row; its entry in the index is elsewhere."""
    data = bytearray(path.read_bytes())
    page_bytes = int.from_bytes(data[16:18], "big")
    table_leaf, name = 13, key.conversation.encode()
    starts = range(page_bytes, len(data), page_bytes)
    (start,) = (at for at in starts if data[at] == table_leaf and name in data[at : at + page_bytes])
    data[start : start + 8] = b"\xee" * 8
    path.write_bytes(data)


class TestLocked:
    def test_a_foreign_lock_is_waited_for_within_the_bound_and_then_named(self, medium: Medium) -> None:
        foreign = sqlite3.connect(medium.path, isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        (outcome,) = medium.commit(append())
        assert isinstance(outcome, StoreUnavailable)
        assert f"{medium.path} is held by another process, nothing was written" in str(outcome)
        assert kinds(medium.commit(append(), append(key=conversation(2)))) == [StoreUnavailable, StoreUnavailable]
        foreign.execute("ROLLBACK")
        foreign.close()
        assert medium.commit(append()) == [None]
        assert len(medium.connections) == 1

    def test_a_foreign_reader_holds_up_nothing(self, medium: Medium) -> None:
        medium.commit(append())
        foreign = sqlite3.connect(medium.path, isolation_level=None)
        foreign.execute("BEGIN")
        assert foreign.execute("SELECT seq FROM conversations").fetchall() == [(2,)]
        assert medium.commit(append([requested(3)]), Tidy()) == [None, False]
        assert foreign.execute("SELECT seq FROM conversations").fetchall() == [(2,)]
        foreign.close()


class TestOneBadRequest:
    BAD: tuple[tuple[str, Append, type[TorporError]], ...] = (
        ("wrong sequence", append([message(9, event=7)]), WrongSequence),
        ("seen message", append([requested(3)], key=conversation(0), message_id="seen"), DuplicateMessage),
        ("lone surrogate", append((created(title="\ud800"), message(2, event=1))), InvariantBroken),
        ("lone surrogate in an id", append(batch_id="\ud800"), InvariantBroken),
        ("number too large for a column", append((created(at_us=2**63), message(2, event=1))), InvariantBroken),
    )

    @pytest.mark.parametrize(("name", "bad", "expected"), BAD, ids=[row[0] for row in BAD])
    @pytest.mark.parametrize("place", [0, 5, 9])
    def test_it_fails_alone_wherever_it_stands_in_the_group(
        self, medium: Medium, name: str, bad: Append, expected: type[TorporError], place: int
    ) -> None:
        assert medium.commit(append(key=conversation(0), message_id="seen")) == [None]
        good = [append(key=conversation(number)) for number in range(2, 11)]
        outcomes = medium.commit(*good[:place], bad, *good[place:])
        assert kinds(outcomes).count(expected) == 1
        assert isinstance(outcomes[place], expected)
        assert [outcome for outcome in outcomes if outcome is None] == [None] * 9
        for number in range(2, 11):
            assert medium.journal(conversation(number)) == opening()
        if bad.key == KEY:
            assert medium.reader.describe(KEY) is None
        assert len(medium.connections) == 1

    def test_it_costs_the_others_no_flush_of_their_own(self, medium: Medium) -> None:
        before = commits_in_log(medium.path)
        good = [append(key=conversation(number)) for number in range(2, 11)]
        assert kinds(medium.commit(*good, append([message(9, event=7)]))).count(WrongSequence) == 1
        assert commits_in_log(medium.path) == before + 1

    def test_two_appends_to_one_place_in_one_group_leave_the_first(self, medium: Medium) -> None:
        outcomes = medium.commit(append(batch_id="first"), append(batch_id="second"), AskHead(key=KEY))
        assert kinds(outcomes) == [type(None), WrongSequence, Head]
        assert outcomes[2] == Head(seq=2, event=1, batch_id="first")

    def test_requests_of_every_kind_keep_their_order_within_a_group(self, medium: Medium) -> None:
        outcomes = medium.commit(
            PutSnapshot(key=KEY, fence=FENCE, snapshot=Snapshot(seq=2, version=1, data=b"too early")),
            append(),
            PutSnapshot(key=KEY, fence=FENCE, snapshot=Snapshot(seq=2, version=1, data=b"in time")),
            append([requested(3)]),
            Quarantine(key=KEY, reason="why"),
            Tidy(),
        )
        assert kinds(outcomes) == [WrongSequence, *[type(None)] * 4, bool]
        assert medium.reader.load(KEY).snapshot == Snapshot(seq=2, version=1, data=b"in time")
        assert medium.journal() == (*opening(), requested(3))


def commits_in_log(path: Path) -> int:
    """Transactions in the write-ahead log: a frame of each carries the size of the database after it."""
    log = path.with_name(path.name + "-wal").read_bytes()
    page_bytes = int.from_bytes(log[8:12], "big")
    frames = range(32, len(log), 24 + page_bytes)
    return sum(int.from_bytes(log[at + 4 : at + 8], "big") > 0 for at in frames)


def test_nothing_is_written_into_a_file_that_was_moved_away_and_all_of_it_once_it_is_back(medium: Medium) -> None:
    first = opening()
    asked = append(first)
    away = medium.path.with_name("elsewhere.db")
    medium.path.rename(away)
    with structlog.testing.capture_logs() as logs:
        outcomes = [*medium.commit(asked, Tidy()), *medium.commit(asked)]
    assert kinds(outcomes) == [StoreGone, bool, StoreGone]
    assert "is not there any more: put back the data folder" in str(outcomes[0])
    assert [line["event"] for line in logs] == ["store.gone"], "which is told once"

    medium.path.write_bytes(b"")
    (outcome,) = medium.commit(asked)
    assert isinstance(outcome, StoreGone)
    assert "is another one by now" in str(outcome)
    assert medium.path.read_bytes() == b""

    away.rename(medium.path)
    assert medium.commit(asked) == [None]
    assert medium.journal() == first
