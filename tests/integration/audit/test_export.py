"""A conversation leaves a data folder as lines of JSON and enters another one, whole or not at all."""

import hashlib
import json
import os
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.integration.audit.lived import Lived
from tests.support.clinic_day import CONVERSATION, DEADLINE_S, PATH, make_home, opened
from tests.support.command_line import Command
from tests.support.histories import told
from torpor.records.journal import JournalRecord
from torpor_fake_api.scripting.replies import says

SEED = 21


def with_header(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}).encode() + b"\n"


def test_what_is_imported_is_for_its_owners_eyes_only(exported: Path, office: Command) -> None:
    office.run("import", str(exported), "--data", "data")
    made = [office.directory / "data", *(office.directory / "data").rglob("*")]
    assert len(made) > 3
    for path in made:
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.fixture(scope="module")
def exported(lived: Lived, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The day as a file."""
    file = tmp_path_factory.mktemp("export") / "day.jsonl"
    lived.torpor.run("export", CONVERSATION, "--out", str(file))
    return file


@pytest.fixture
def office(tmp_path: Path) -> Command:
    """A data folder where nothing is yet."""
    return Command(tmp_path, TORPOR_TEST_DATA="")


def imported(office: Command, file: Path, *options: str) -> dict[str, Any]:
    (fact,) = office.facts("import", str(file), "--data", "data", *options)
    return fact


def verified(office: Command) -> list[tuple[str, str]]:
    return [(fact["path"], fact["difference"]) for fact in office.facts("verify", "--all", "--data", "data")]


def as_export(records: Sequence[JournalRecord], **fields: Any) -> bytes:
    """A file that was not written by the engine, with a good digest."""
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    event = max((record.event for record in records), default=0)
    header = {
        "format": "torpor.conversation",
        "version": 1,
        "tenant": "acme",
        "owner": "ann",
        "conversation": "c_1",
        "epoch": 1,
        "head": {"seq": len(records), "event": event, "batch_id": "b"},
        "records": len(records),
        "blobs": 0,
        "digest": hashlib.sha256(lines).hexdigest(),
    }
    return json.dumps(header | fields).encode() + b"\n" + lines


def test_a_file_holds_a_header_a_record_a_line_and_long_results(exported: Path, lived: Lived) -> None:
    header, *lines = exported.read_bytes().splitlines(keepends=True)
    facts, blob = json.loads(header), json.loads(lines[-1])
    records = [json.loads(line) for line in lines[:-1]]

    assert records == lived.records()
    assert (facts["format"], facts["version"], facts["epoch"]) == ("torpor.conversation", 1, 1)
    assert f"{facts['tenant']}/{facts['owner']}/{facts['conversation']}" == PATH
    assert (facts["head"]["seq"], facts["records"], facts["blobs"]) == (len(records), len(records), 1)
    assert facts["digest"] == hashlib.sha256(b"".join(lines)).hexdigest()
    assert blob["blob"] in {record.get("handle") for record in records}
    assert exported.stat().st_mode & 0o077 == 0


def test_what_is_imported_is_what_was_exported(exported: Path, office: Command) -> None:
    fact = imported(office, exported, "--as", "ada/copy")
    again = office.output("export", "ada/copy", "--data", "data")

    assert fact["path"] == "default/ada/copy"
    assert verified(office) == [("default/ada/copy", "")]
    header, *lines = exported.read_text().splitlines()
    other, *theirs = again.splitlines()
    assert lines == theirs
    assert json.loads(header)["digest"] == json.loads(other)["digest"]


def test_a_conversation_that_is_there_is_never_touched(exported: Path, office: Command) -> None:
    imported(office, exported)

    assert office.complaint("import", str(exported), "--data", "data") == (
        "torpor: conversation 'developer/day' is there already, name another one with --as"
    )
    assert verified(office) == [(PATH, "")]


def test_an_imported_conversation_goes_on_where_it_ended(exported: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home(home, url="http://127.0.0.1:1")
    torpor = Command(home)
    torpor.run("import", str(exported))
    before = torpor.output("inspect", CONVERSATION, "--request", "--data", ".torpor")

    async def go_on() -> list[Any]:
        async with opened(home) as day:
            with anyio.fail_after(DEADLINE_S):
                day.sent = 100
                await day.ask("Are you still there?", says("I am."))
            return day.api.bodies

    (body,) = anyio.run(go_on)
    said = json.loads(before)["messages"]
    assert [message["role"] for message in body["messages"][: len(said)]] == [message["role"] for message in said]
    assert body["messages"][-1]["content"][0]["text"] == "Are you still there?"
    (fact,) = torpor.facts("verify", CONVERSATION)
    assert (fact["difference"], fact["requests"]) == ("", 14)


def test_a_resent_message_of_an_imported_conversation_is_still_one(exported: Path, office: Command) -> None:
    imported(office, exported)
    with closing(sqlite3.connect(office.directory / "data" / "torpor.db")) as db:
        receipts = dict(db.execute("SELECT message_id, json_extract(receipt, '$.event') FROM receipts"))
    records = [json.loads(line) for line in exported.read_text().splitlines()[1:-1]]

    assert receipts == {
        record["message_id"]: record["event"] for record in records if record["kind"] == "message_received"
    }


def test_a_file_is_checked_by_itself_and_nothing_is_made(exported: Path, office: Command) -> None:
    (checked,) = office.facts("import", "--check", str(exported))
    assert "is whole, nothing was imported of" in office.output("import", "--check", str(exported))
    assert not list(office.directory.iterdir())
    assert imported(office, exported) == checked
    told = office.output("import", "--check", str(exported), "--data", "data")
    assert "is whole" in told  # though it is there already

    damaged = office.directory / "damaged.jsonl"
    damaged.write_bytes(exported.read_bytes().replace(b'"seq":2', b'"seq":9', 1))
    assert "could not be imported: " in office.complaint("import", "--check", str(damaged))


def test_the_export_of_a_living_conversation_is_not_compared(exported: Path, office: Command) -> None:
    office.run("import", str(exported), "--data", "data")
    told = office.output("verify", "--export", str(exported), "--data", "data", code=1)
    (fact,) = office.facts("verify", "--export", str(exported), "--data", "data", code=1)

    assert "DIFFERS" not in told
    assert "not compared: no conversation of its name was erased here" in told
    assert f"import --check {exported}` verifies the file by itself" in told
    assert fact["compared"] is False


def test_one_flipped_byte_anywhere_is_refused_and_leaves_nothing(exported: Path, office: Command) -> None:
    rng, whole, file = random.Random(SEED), exported.read_bytes(), office.directory / "flipped.jsonl"
    body = whole.index(b"\n") + 1
    for _ in range(12):
        place = rng.randrange(body, len(whole))
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << rng.randrange(8)]) + whole[place + 1 :])
        assert "is not imported" in office.complaint("import", str(file), "--data", "data")

    assert verified(office) == []
    assert not list((office.directory / "data").glob("blobs/**/*"))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]],
            "version 2, this engine reads 1",
        ),
        (lambda lines: [lines[0].replace(b"torpor.", b"other."), *lines[1:]], "its first line is no header"),
        (lambda lines: [with_header(lines[0], records=5), *lines[1:]], "tells of 5 records"),
        (lambda lines: [with_header(lines[0], blobs=77), *lines[1:]], "and 77 blobs"),
        (lambda lines: [with_header(lines[0], epoch=99), *lines[1:]], "epoch 99"),
        (lambda lines: lines[1:], "its first line is no header"),
        (lambda lines: [b"\xff\n"], "its first line is no header"),
        (lambda lines: lines[:1], "it ends at record 0"),
        (lambda lines: lines[:5], "it ends at record 4"),
        (lambda lines: lines[:-1], "is named by a record and missing"),
        (lambda lines: [*lines, lines[-1]], "is named by no record, or is there twice"),
        (lambda lines: [*lines, lines[-2]], "a record follows a blob"),
        (lambda lines: [*lines[:-1], lines[-1].replace(b'"data"', b'"data')], "a blob cannot be read"),
        (lambda lines: [*lines[:3], *lines[4:]], "record 3"),
        (lambda lines: [lines[0].replace(b'"conversation":"day"', b'"conversation":"a day"'), *lines[1:]], "names"),
        (lambda lines: [*lines[:-1], lines[-1].removesuffix(b"\n")], "its lines have digest"),
    ],
)
def test_a_file_that_is_not_what_was_written_is_refused(
    exported: Path, office: Command, change: Any, complaint: str
) -> None:
    file = office.directory / "bad.jsonl"
    file.write_bytes(b"".join(change(exported.read_bytes().splitlines(keepends=True))))

    assert complaint in office.complaint("import", str(file), "--data", "data")
    assert not (office.directory / "data" / "torpor.db").exists() or verified(office) == []


def test_a_running_server_is_named_with_what_to_do(exported: Path, tmp_path: Path) -> None:
    torpor = Command(tmp_path)
    torpor.run("init", "home")

    with torpor.serving("--home", "home"):
        complaint = torpor.complaint("import", str(exported), "--home", "home")

    assert "is in use by the process" in complaint
    assert "stop that server, or choose another directory with --data" in complaint


def test_a_long_conversation_is_imported_whole_and_what_is_unfinished_is_due(office: Command) -> None:
    teller, seed = told(b""), 0
    while len(teller.journal) < 600 or teller.is_at_rest:
        teller, seed = told(random.Random(seed).randbytes(3_000)), seed + 1
    file = office.directory / "long.jsonl"
    file.write_bytes(as_export(teller.journal))

    fact = imported(office, file)

    assert (fact["records"], fact["requests"]) == (len(teller.journal), len(teller.requests))
    assert verified(office) == [("acme/ann/c_1", "")]
    with closing(sqlite3.connect(office.directory / "data" / "torpor.db")) as db:
        rows = db.execute("SELECT count(*), max(last_seq - first_seq + 1) FROM journal").fetchone()
        due = db.execute("SELECT due_us IS NOT NULL FROM conversations").fetchone()
    assert rows == (-(-len(teller.journal) // 256), 256)
    assert due == (1,)


def test_a_long_conversation_that_is_wrong_at_its_end_leaves_nothing(office: Command) -> None:
    teller = told(random.Random(SEED).randbytes(4_000))
    file = office.directory / "long.jsonl"
    file.write_bytes(as_export(teller.journal, digest="0" * 64))

    assert "its lines have digest" in office.complaint("import", str(file), "--data", "data")
    assert len(teller.journal) > 600
    assert verified(office) == []


def test_a_file_without_a_record_is_refused(office: Command) -> None:
    file = office.directory / "empty.jsonl"
    file.write_bytes(as_export([]))

    assert "it holds no record" in office.complaint("import", str(file), "--data", "data")


def test_names_that_are_none_are_refused(exported: Path, office: Command) -> None:
    for name in ("alone", "a/b/c/d", "ada/a day", "a b/c"):
        assert "is no conversation" in office.complaint("import", str(exported), "--as", name, "--data", "data", code=2)


def test_a_file_that_is_there_is_replaced_only_when_that_was_asked_for(lived: Lived, tmp_path: Path) -> None:
    file = tmp_path / "day.jsonl"
    file.write_text("before")

    complaint = lived.torpor.complaint("export", CONVERSATION, "--out", str(file))

    assert (complaint, file.read_text()) == (f"torpor: {file} is there already, --force replaces it", "before")
    lived.torpor.run("export", CONVERSATION, "--out", str(file), "--force")
    assert file.read_text() != "before"


def test_nothing_but_a_regular_file_is_ever_replaced(lived: Lived, tmp_path: Path) -> None:
    kept, link, dangling, pipe = (tmp_path / name for name in ("kept", "link", "dangling", "pipe"))
    kept.write_text("mine")
    link.symlink_to(kept)
    dangling.symlink_to(tmp_path / "nowhere")
    os.mkfifo(pipe)
    before = sorted(tmp_path.iterdir())

    for out in (link, dangling, pipe):
        for options in ((), ("--force",)):
            assert lived.torpor.complaint("export", CONVERSATION, "--out", str(out), *options) == (
                f"torpor: {out} is no regular file, expected one or a name that is free"
            )
    assert sorted(tmp_path.iterdir()) == before
    assert (link.is_symlink(), kept.read_text()) == (True, "mine")


def test_a_folder_that_is_missing_is_named(lived: Lived, tmp_path: Path) -> None:
    out = tmp_path / "missing" / "day.jsonl"

    assert lived.torpor.complaint("export", CONVERSATION, "--out", str(out)) == (
        f"torpor: folder {out.parent} does not exist, expected one to put day.jsonl into"
    )


def test_what_differs_is_not_exported_and_the_file_stays_as_it_was(lived: Lived, tmp_path: Path) -> None:
    torpor = Command(tmp_path)
    file = tmp_path / "day.jsonl"
    file.write_text("before")
    data = tmp_path / "data"
    data.mkdir()
    (data / "torpor.db").write_bytes((lived.data / "torpor.db").read_bytes())

    complaint = torpor.complaint("export", CONVERSATION, "--data", "data", "--out", str(file), "--force")

    assert complaint.startswith(f"torpor: developer/{CONVERSATION} differs at record ")
    assert "is not there" in complaint
    assert file.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "day.jsonl"]
