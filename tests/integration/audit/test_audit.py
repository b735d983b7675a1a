"""What a model was asked can be shown from the store alone, and a store that was changed shows it."""

import random
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.audit.lived import Lived
from tests.support import rebuild
from tests.support.clinic_day import CONVERSATION, PATH
from tests.support.command_line import Command
from tests.support.sample_records import opening
from tests.support.writing import write
from torpor.operations.audit import Verdict, verdict_on
from torpor.records.ids import ConversationKey
from torpor.store.blobs import LocalBlobs, MemoryBlobs
from torpor.store.sqlite.auditing import open_to_audit
from torpor.store.sqlite.engine import open_sqlite
from torpor.store.sqlite.migrations import MIGRATIONS, migrate

SEED = 20
FLIPS = 75
"""For each column."""


def as_stored(body: dict[str, Any]) -> bytes:
    """What was sent, without what belongs to sending alone."""

    def without_marks(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_marks(held) for name, held in value.items() if name != "cache_control"}
        return [without_marks(each) for each in value] if isinstance(value, list) else value

    return rebuild.canonical(without_marks({name: value for name, value in body.items() if name != "stream"}))


def test_the_day_holds_everything_that_a_request_may_hold(lived: Lived) -> None:
    records = lived.records()
    kinds = {record["kind"] for record in records}
    blocks = [block for record in records for block in record.get("blocks", [])]

    assert {"flags_pinned", "context_changed", "skill_loaded", "turn_cancelled", "turn_refused"} <= kinds
    assert any(record.get("policies") for record in records)
    assert any(record.get("joined") for record in records)
    assert any(record.get("partial") for record in records)
    assert any(record.get("handle") for record in records)
    assert {block["type"] for block in blocks} == {"text", "thinking", "tool_use"}


def test_another_process_reproduces_each_body_from_the_store_alone(lived: Lived) -> None:
    calls = [record["call"] for record in lived.records() if record["kind"] == "model_requested"]
    sent = [as_stored(body) for body in lived.bodies]

    verdict = lived.torpor.facts("verify", CONVERSATION)
    shown = [
        lived.torpor.output("inspect", CONVERSATION, "--request", "--call", call, "--data", ".torpor").encode()
        for call in calls
    ]

    assert [(found["path"], found["requests"], found["difference"]) for found in verdict] == [(PATH, len(sent), "")]
    assert len(verdict[0]["blobs"]) == 1
    assert shown == [body + b"\n" for body in sent]


def test_somebody_who_shares_nothing_with_the_engine_finds_the_same(lived: Lived) -> None:
    records = lived.records()
    named = [record for record in records if record["kind"] == "model_requested"]
    found = list(rebuild.rebuilt(records))

    assert [request.body for request in found] == [as_stored(body) for body in lived.bodies]
    assert [(request.link, request.preamble) for request in found] == [(r["link"], r["preamble"]) for r in named]


def test_inspect_tells_what_was_in_a_request_and_what_it_changed(lived: Lived) -> None:
    data = ("--data", ".torpor")
    (budget,) = lived.torpor.facts("inspect", CONVERSATION, "--budget", "--call", "2-2-1", *data)
    assert budget["call"] == "2-2-1"
    for options in (["--budget"], ["--turn", "2"], ["--request"]):
        unknown = lived.torpor.complaint("inspect", CONVERSATION, *options, "--call", "9-9-9", *data)
        assert "has no request '9-9-9'" in unknown
    parts = lived.torpor.facts("inspect", CONVERSATION, "--why", "--call", "2-2-1", *data)
    (changed,) = lived.torpor.facts("inspect", CONVERSATION, "--diff", "--call", "2-2-1", *data)

    assert {part["part"] for part in parts} == {
        "agent",
        "preamble",
        "flag",
        "skill",
        "context",
        "history",
        "message",
        "policy",
        "result",
    }
    (skill,) = [part for part in parts if part["part"] == "skill"]
    records = lived.records()
    assert records[skill["seq"] - 1]["kind"] == "skill_loaded"
    assert skill["name"] == "moving-or-cancelling-visits"
    assert changed["before"]["call"] == "2-1-1"
    assert any(line.startswith('+    name: "load_skill"') for line in changed["lines"])
    assert not any(line.startswith("-") for line in changed["lines"])


def test_what_the_host_read_from_its_cache_stands_beside_what_it_may_have_read(lived: Lived) -> None:
    *each, summary = lived.torpor.facts("inspect", CONVERSATION, "--cache", "--data", ".torpor")

    within = [found for found in each if found["share"] is not None and not found["is_first_of_turn"]]
    assert {found["share"] for found in within} == {1.0}
    assert {found["cause"] for found in each} == {"", "turn-only blocks", "refusal"}
    assert summary["within_turns"] == 1.0
    assert len(each) == len(lived.bodies)


class Changed:
    """A copy of the database in which one value at a time is another."""

    def __init__(self, lived: Lived, folder: Path) -> None:
        shutil.copytree(lived.data, folder)
        self.folder = folder
        self.db = sqlite3.connect(folder / "torpor.db", isolation_level=None)

    def values(self, table: str, column: str) -> list[tuple[int, bytes]]:
        rows = self.db.execute(f"SELECT rowid, CAST({column} AS BLOB) FROM {table}").fetchall()
        return [(rowid, value) for rowid, value in rows if value]

    async def verdict(self, table: str, column: str, *, rowid: int, value: bytes) -> Verdict:
        """With ``value`` in its place, which is put back."""
        (before,) = self.db.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (rowid,)).fetchone()
        update = f"UPDATE {table} SET {column} = CAST(? AS {'TEXT' if isinstance(before, str) else 'INTEGER'})"
        self.db.execute(f"{update} WHERE rowid = ?", (value, rowid))
        try:
            with open_to_audit(self.folder) as reader:
                (key,) = reader.keys()
                return await verdict_on(reader, key, blobs=LocalBlobs(self.folder / "blobs", in_threads=False))
        finally:
            self.db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (before, rowid))


@pytest.fixture
def changed(lived: Lived, tmp_path: Path) -> Iterator[Changed]:
    copy = Changed(lived, tmp_path / "copy")
    yield copy
    copy.db.close()


def flipped(value: bytes, rng: random.Random) -> bytes:
    """One bit of one byte."""
    place = rng.randrange(len(value))
    return value[:place] + bytes([value[place] ^ 1 << rng.randrange(8)]) + value[place + 1 :]


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("journal", "records"),
        ("conversations", "tenant"),
        ("conversations", "owner"),
        ("conversations", "conversation"),
        ("conversations", "agent"),
    ],
)
async def test_a_flipped_byte_in_any_text_fails(changed: Changed, table: str, column: str) -> None:
    rng, rows = random.Random(SEED), changed.values(table, column)
    for _ in range(4 * FLIPS if table == "journal" else 20):
        rowid, value = rng.choices(rows, [len(value) for _, value in rows])[0]
        other = flipped(value, rng)
        assert (await changed.verdict(table, column, rowid=rowid, value=other)).difference, (value, other)


async def test_a_file_whose_checksums_were_all_taken_away_fails(changed: Changed) -> None:
    rowid, value = changed.values("journal", "records")[0]
    changed.db.execute("UPDATE journal SET checksum = NULL")

    verdict = await changed.verdict("journal", "records", rowid=rowid, value=value)

    assert verdict.difference.endswith("has no checksum, expected one")
    assert verdict.seq == 1


def make_older(database: Path) -> None:
    """As an engine would have left it before rows had checksums. No connection to it may be open."""
    older = database.with_name("older.db")
    with closing(sqlite3.connect(older, isolation_level=None)) as db:
        migrate(db, path=str(older), migrations=MIGRATIONS[:2])
        db.execute("DELETE FROM boot")
        db.execute("ATTACH ? AS newer", (str(database),))
        tables = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in db.execute(tables).fetchall():
            columns = ", ".join(column[1] for column in db.execute(f"PRAGMA main.table_info({table})"))
            db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM newer.{table}")
    older.replace(database)


async def test_an_older_file_is_verified_without_checksums_up_to_where_they_begin(changed: Changed) -> None:
    changed.db.close()
    make_older(changed.folder / "torpor.db")
    changed.db = sqlite3.connect(changed.folder / "torpor.db", isolation_level=None)
    async with open_sqlite(changed.folder) as store:
        await write(store, opening()[:1])
    old, new = await verdicts(changed.folder)
    assert (old.difference, new.difference) == ("", "")

    changed.db.execute("UPDATE journal SET checksum = NULL")
    old, new = await verdicts(changed.folder)
    assert old.difference == ""
    assert (new.seq, new.difference) == (1, "its row, up to record 1, has no checksum, expected one")


@pytest.mark.parametrize("sql", ["UPDATE checksums SET after = 1000", "DELETE FROM checksums"])
async def test_a_mark_that_was_changed_excuses_no_row_behind_one_with_a_checksum(sql: str, changed: Changed) -> None:
    changed.db.execute(sql)
    changed.db.execute("UPDATE journal SET checksum = NULL WHERE position > 1")
    (verdict,) = await verdicts(changed.folder)
    assert "has no checksum" in verdict.difference


async def verdicts(folder: Path) -> list[Verdict]:
    with open_to_audit(folder) as reader:
        blobs = LocalBlobs(folder / "blobs", in_threads=False)
        return [await verdict_on(reader, key, blobs=blobs) for key in reversed([*reader.keys()])]


_NUMBERS = ("position", "number", "previous", "first_seq", "last_seq", "last_event", "checksum")


@pytest.mark.parametrize("column", _NUMBERS)
async def test_a_changed_number_beside_a_row_fails(changed: Changed, column: str) -> None:
    for rowid, value in changed.values("journal", column):
        verdict = await changed.verdict("journal", column, rowid=rowid, value=b"%d" % (int(value) + 1000))
        assert verdict.difference
        assert verdict.seq


@pytest.mark.parametrize(
    "column", ["agent", "seq", "event", "last_position", "created_us", "updated_us", "is_archived", "is_failed"]
)
async def test_a_changed_value_of_the_directory_fails(changed: Changed, column: str) -> None:
    rng = random.Random(SEED)
    ((rowid, value),) = changed.values("conversations", column)
    for _ in range(10 if column == "agent" else 1):
        other = flipped(value, rng) if column == "agent" else b"%d" % (int(value) + 1)
        assert (await changed.verdict("conversations", column, rowid=rowid, value=other)).difference


async def test_a_name_that_is_no_text_fails_and_harms_no_other(changed: Changed) -> None:
    ((rowid, _),) = changed.values("conversations", "owner")

    assert "not text" in (await changed.verdict("conversations", "owner", rowid=rowid, value=b"\xff")).difference


async def test_a_conversation_that_went_away_meanwhile_is_told(changed: Changed) -> None:
    with open_to_audit(changed.folder) as reader:
        verdict = await verdict_on(reader, ConversationKey("a", "b", "c"), blobs=MemoryBlobs())

    assert "not there any more" in verdict.difference


async def test_a_result_that_was_too_long_for_its_record_must_be_what_it_was(changed: Changed) -> None:
    (blob,) = [path for path in (changed.folder / "blobs").rglob("*") if path.is_file()]
    rows = changed.values("journal", "records")
    whole = blob.read_bytes()

    blob.write_bytes(flipped(whole, random.Random(SEED)))
    rowid, value = rows[0]
    assert "has digest" in (await changed.verdict("journal", "records", rowid=rowid, value=value)).difference
    blob.unlink()
    assert "is not there" in (await changed.verdict("journal", "records", rowid=rowid, value=value)).difference


async def test_verify_names_the_first_record_that_differs_and_fails(lived: Lived, tmp_path: Path) -> None:
    copy = tmp_path / "data"
    await anyio.to_thread.run_sync(lambda: shutil.copytree(lived.data, copy))
    with closing(sqlite3.connect(copy / "torpor.db", isolation_level=None)) as db:
        db.execute("UPDATE journal SET records = replace(records, 'On both, until', 'On none, until')")

    (replied,) = [
        record["seq"] for record in lived.records() if record["kind"] == "model_replied" and record["call"] == "1-2-1"
    ]
    done = lived.torpor.run("verify", "--all", "--data", str(copy), code=1)

    assert f"developer/{CONVERSATION}  DIFFERS at record {replied}: its row, up to record" in done.stdout
    assert lived.torpor.facts("verify", CONVERSATION, "--data", str(copy), code=1)[0]["seq"] == replied


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM conversations", r"table journal has \d+ rows of conversation number 1, which is not in the dire"),
        ("DROP TABLE jobs", "lacks the tables jobs"),
        ("DROP INDEX conversations_listed", "the database lacks index 'conversations_listed'"),
        (
            "CREATE TRIGGER evil AFTER INSERT ON journal BEGIN DELETE FROM receipts; END",
            "the database has trigger 'evil', which is none of ours",
        ),
        ("CREATE TABLE evil (x)", "the database has table 'evil', which is none of ours"),
        (
            "INSERT INTO jobs (number, id, kind, due_us, payload) VALUES (1, 'x', 'k', 1, 'garbage')",
            "job 'x' of conversation number 1 is not as an engine writes it",
        ),
        (
            "INSERT INTO jobs (number, id, kind, due_us, payload) VALUES (9, 'x', 'k', 1, '{}')",
            "table jobs has 1 rows of conversation number 9",
        ),
        (
            "INSERT INTO journal SELECT max(position) + 1, number, previous, first_seq, last_seq, last_event, records,"
            " checksum FROM journal",
            "follows its journal's head, or belongs to no journal",
        ),
        ("UPDATE journal SET checksum = NULL WHERE position = 3", "row 3 of conversation number 1 has no checksum"),
        ("UPDATE journal SET checksum = NULL", "row 1 of conversation number 1 has no checksum, rows after 0 have one"),
        ("DELETE FROM checksums", "table checksums has 0 rows"),
        ("DROP TABLE checksums", "lacks the tables checksums"),
        ("DELETE FROM boot", "table boot has 0 rows"),
        ("UPDATE boot SET number = 0", "table boot tells of 0 starts, expected 1 to"),
        ("UPDATE boot SET number = -5", "table boot tells of -5 starts, expected 1 to"),
        ("UPDATE boot SET number = 9223372036854775807", "table boot tells of 9223372036854775807 starts"),
        (
            "INSERT INTO journal SELECT 99999, number, 99999, first_seq, last_seq, last_event, records, checksum"
            " FROM journal WHERE position = 1",
            "row 99999 of conversation number 1 follows its journal's head, or belongs to no journal",
        ),
        (
            "INSERT INTO journal SELECT column1, number, column2, first_seq, last_seq, last_event, records, checksum"
            " FROM journal, (VALUES (99998, 99999), (99999, 99998)) WHERE position = 1",
            "row 99998 of conversation number 1 follows its journal's head, or belongs to no journal",
        ),
        (
            """UPDATE receipts SET receipt = replace(receipt, '"at_us":1', '"at_us":2')""",
            "the receipt of message '.*' is not the one that was given",
        ),
        (
            'INSERT INTO receipts SELECT number, \'evil\', \'{"message_id":"evil","event":99999,"at_us":1,'
            '"position":0}\' FROM conversations',
            "the receipt of message 'evil' names event 99999, the last is",
        ),
        ("UPDATE receipts SET number = 2", "has no receipt"),
        ("UPDATE conversations SET batch_id = ''", "the directory names no append"),
        ("UPDATE conversations SET due_us = 1", "says that it is due, and nothing is to be done"),
    ],
)
def test_verify_all_tells_what_belongs_to_no_conversation(sql: str, told: str, changed: Changed) -> None:
    changed.db.execute(sql)
    changed.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shown = Command(changed.folder.parent).output("verify", "--all", "--data", str(changed.folder), code=1)
    assert re.search(f"DIFFERS.*{told}", shown), shown


def test_a_schema_that_is_no_text_is_told_in_words(changed: Changed) -> None:
    changed.db.execute("PRAGMA writable_schema = ON")
    changed.db.execute(
        "UPDATE sqlite_schema SET sql = replace(CAST(sql AS BLOB), CAST('data BLOB' AS BLOB), CAST(x'64a061' AS BLOB))"
        " WHERE name = 'snapshots'"
    )
    changed.db.close()
    for asked in (("verify", "--all"), ("ps",)):
        assert "torpor.db" in Command(changed.folder.parent).complaint(*asked, "--data", str(changed.folder))


def test_two_views_of_a_request_at_once_are_refused(changed: Changed) -> None:
    torpor = Command(changed.folder.parent)
    asked = ("inspect", CONVERSATION, "--data", str(changed.folder), "--diff", "--why")
    assert "--diff and --why each show something else" in torpor.run(*asked, code=2).stderr
