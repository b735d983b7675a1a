"""Nothing that was said can be found in the data folder once a command says that it is gone.

Every byte of every file is looked at, also behind a server that was killed right then, and beside somebody who reads.
"""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from tests.support.command_line import DEADLINE_S, Command, ServerProcess
from torpor.client.torpor_client import TorporClient

OURS, THEIRS = "zq7marker4ours", "zq7marker4theirs"
"""What ann says, and bob; nowhere else on earth."""

AGENT = """
name = "finder"
default = true
system = "You find things."
max_tokens = 1024

[model]
kind = "scripted"
rehearsal = "finder"
"""
REHEARSAL = """
[[rule]]
match = 'find (?P<word>\\S+)'
[[rule.step]]
say = "I look for {word}."
call = [{ tool = "find", arguments = { word = "{word}" } }]
[[rule.step]]
say = "I found {word}."

[[rule]]
[[rule.step]]
say = "I hear you."
"""
TOOL = '''
from torpor import tool


@tool(effect="read")
async def find(word: str) -> str:
    """Find a word.

    Args:
        word: What to find.
    """
    return f"{word} is here. " * 4_000
'''
SETTINGS = """
[actor]
snapshot_min_bytes = 1
"""


@pytest.fixture
def torpor(tmp_path: Path) -> Command:
    """In a home whose tool says a word very often, so that its results are kept beside the journal."""
    for name, text in {
        "config/agents/finder.toml": AGENT,
        "config/rehearsals/finder.toml": REHEARSAL,
        "config/torpor.toml": SETTINGS,
        "tools/find.py": TOOL,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Command(tmp_path)


def say(server: ServerProcess, *messages: tuple[str, str]) -> None:
    """Say it in the conversation of each path, give that a title, and have it sleep."""

    async def said() -> None:
        async with TorporClient(server.ready["url"], server.ready["token"]) as client:
            for path, text in messages:
                await client.send(path, text)
                await client.rename(path, f"About {text}")
                await client.hibernate(path, deadline_s=DEADLINE_S)

    anyio.run(said)


def fill(server: ServerProcess) -> None:
    """Two conversations of ann's and one of bob's, each with a message, a title, a blob and a snapshot."""
    say(server, ("ann/c1", f"find {OURS}"), ("ann/c2", f"find {OURS}2"), ("bob/c1", f"find {THEIRS}"))


def places(folder: Path, text: str) -> Iterator[str]:
    """Files of the data folder in which it can be read, by name or by content."""
    for path in folder.rglob("*"):
        if text in path.name or (path.is_file() and text.encode() in path.read_bytes()):
            yield str(path.relative_to(folder))


def kinds(found: Iterator[str]) -> set[str]:
    return {name.partition("/")[0] for name in found}


def is_forgotten(folder: Path) -> bool:
    """Of ann, everything, and of bob, nothing."""
    assert kinds(places(folder, THEIRS)) >= {"blobs", "torpor.db"} or "torpor.db-wal" in kinds(places(folder, THEIRS))
    return list(places(folder, OURS)) == []


def test_what_was_said_is_in_no_byte_of_any_file_though_the_server_is_killed_right_then(torpor: Command) -> None:
    data = torpor.directory / ".torpor"
    with torpor.serving() as server:
        fill(server)
        with closing(sqlite3.connect(data / "torpor.db")) as tables:
            assert tables.execute("SELECT count(*) FROM snapshots").fetchone() == (3,)
        assert kinds(places(data, OURS)) >= {"blobs"}
        assert torpor.output("forget", "--owner", "ann", "--dry-run", *server.where).startswith(
            "ann has 2 conversations, "
        )
        said = torpor.output("forget", "--owner", "ann", "--yes", *server.where)
        server.kill()
        assert is_forgotten(data)
        assert said.startswith("ann is forgotten: 2 conversations, ")
        assert said.endswith(" 2 blobs\n")
        server.start()
        assert is_forgotten(data)
        assert [row["path"] for row in torpor.facts("ps", *server.where)] == ["default/bob/c1"]
    assert is_forgotten(data)


def test_a_deleted_conversation_is_in_no_byte_either(torpor: Command) -> None:
    data = torpor.directory / ".torpor"
    with torpor.serving() as server:
        fill(server)
        for name in ("c1", "c2"):
            torpor.run("delete", f"ann/{name}", "--yes", *server.where)
        server.kill()
        assert is_forgotten(data)


def test_retention_deletes_what_it_says_that_it_would(torpor: Command) -> None:
    data = torpor.directory / ".torpor"
    with torpor.serving() as server:
        fill(server)
    torpor.environ |= {"TORPOR__RETENTION__PER_OWNER_MAX": "1", "TORPOR__RETENTION__PAUSE_S": "0"}
    assert [(row["path"], row["reason"]) for row in torpor.facts("retention")] == [("default/ann/c1", "count")]
    with torpor.serving() as server:
        while len(torpor.facts("ps", *server.where)) > 2:
            pass
    assert torpor.facts("retention") == []
    assert list(places(data, f"{OURS} is here")) == []
    assert list(places(data, f"find {OURS}2")) != []
    assert "(count)" in torpor.output("verify", "ann/c1")


def test_it_is_not_said_to_be_gone_while_somebody_can_read_it(torpor: Command) -> None:
    data = torpor.directory / ".torpor"
    with torpor.serving() as server:
        fill(server)
        with closing(sqlite3.connect(data / "torpor.db", isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM journal").fetchone()
            complaint = torpor.complaint("forget", "--owner", "ann", "--yes", *server.where)
        assert "another program keeps what was in them" in complaint
        assert torpor.output("forget", "--owner", "ann", "--yes", *server.where) == "ann is forgotten: nothing\n"
        assert is_forgotten(data)


def test_without_a_server_it_is_done_here_and_with_one_it_is_not(torpor: Command) -> None:
    data = torpor.directory / ".torpor"
    with torpor.serving() as server:
        fill(server)
        assert "in use" in torpor.complaint("forget", "--owner", "ann", "--yes", "--data", ".torpor")
    for answer, said in (("n\n", "nothing was deleted"), ("", "nothing was deleted, since nobody answered")):
        done = torpor.run("forget", "--owner", "ann", "--data", ".torpor", code=1, stdin=answer)
        assert f"torpor: {said}" in done.stderr
    assert list(places(data, OURS)) != []
    torpor.run("forget", "--owner", "ann", "--data", ".torpor", stdin="y\n")
    assert is_forgotten(data)


@pytest.mark.parametrize("owner", ["", "a/b/c", "a b", "/ann", "ann/"])
def test_nonsense_is_refused(torpor: Command, owner: str) -> None:
    assert "is no owner, expected [tenant/]owner" in torpor.complaint("forget", "--owner", owner, "--yes", code=2)


def test_verify_says_erased_and_knows_a_copy_again(torpor: Command) -> None:
    with torpor.serving() as server:
        fill(server)
        torpor.run("export", "ann/c1", "--out", "copy.jsonl")
        torpor.run("forget", "--owner", "ann", "--yes", *server.where)
        told = torpor.output("verify", "ann/c1")
        assert told.startswith("ann/c1  erased at 20")
        assert "(forgotten), " in told
        assert torpor.facts("verify", "default/ann/c1")[0]["erased"]["cause"] == "forgotten"
        assert "no conversation 'ann/c9'" in torpor.complaint("verify", "ann/c9")
        assert torpor.output("verify", "--all").endswith("bob/c1  verified: 12 records, 2 requests rebuilt, 1 blob\n")
        unknown = torpor.complaint("thaw", "default/ann/c1", *server.where)
        never = torpor.complaint("thaw", "default/ann/c9", *server.where)
        assert unknown.replace("c1", "c9") == never
    assert "is ann/c1, whole: erased at 20" in torpor.output("verify", "--export", "copy.jsonl")
    copy = torpor.directory / "copy.jsonl"
    copy.write_text(copy.read_text().replace(OURS, f"{OURS[:-1]}z"))
    assert "DIFFERS: its lines are not those" in torpor.output("verify", "--export", "copy.jsonl", code=1)


def test_a_copy_of_something_else_is_not_taken_for_it(torpor: Command) -> None:
    with torpor.serving() as server:
        fill(server)
        torpor.run("export", "ann/c1", "--out", "early.jsonl")
        assert "was erased here" in torpor.output("verify", "--export", "early.jsonl", code=1)
        say(server, ("ann/c1", "and more"))
        torpor.run("delete", "ann/c1", "--yes", *server.where)
    told = torpor.output("verify", "--export", "early.jsonl", code=1)
    assert "not compared: it was made at record" in told
    assert "import --check early.jsonl` verifies the file by itself" in told


@pytest.mark.parametrize(
    "end", [ServerProcess.kill, pytest.param(ServerProcess.stop, marks=pytest.mark.soak)], ids=["killed", "stopped"]
)
def test_one_that_is_interrupted_is_finished_by_running_it_again(
    torpor: Command, end: Callable[[ServerProcess], object]
) -> None:
    data = torpor.directory / ".torpor"
    with torpor.serving() as server:
        say(server, *((f"ann/d{number}", f"find {OURS}") for number in range(6)))
        fill(server)
        command = [sys.executable, "-m", "torpor.cli.main", "forget", "--owner", "ann", "--yes", *server.where]
        first = subprocess.Popen(command, cwd=torpor.directory, env=torpor.environ, stderr=subprocess.DEVNULL)
        while len(torpor.facts("ps", "--data", ".torpor")) == 9:
            pass
        end(server)
        server.start()
        first.kill()
        first.wait(DEADLINE_S)
        torpor.run("forget", "--owner", "ann", "--yes", *server.where)
        assert is_forgotten(data)
        assert torpor.facts("ps", *server.where)[0]["path"] == "default/bob/c1"
