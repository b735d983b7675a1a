"""Files at the command line, and an upload that a killed server cuts off again and again."""

import hashlib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from tests.support import files_people_send as files
from tests.support.command_line import DEADLINE_S, Command, ServerProcess, set_pace
from torpor.client import files as client_files
from torpor.client.torpor_client import TorporClient
from torpor.records.frames import ClientFrame

PIECE_BYTES: Final = 65_536
DATA: Final = files.noise(420, 330)
"""More than six pieces."""
FRAMES: Final = 2 + -(-len(DATA) // PIECE_BYTES)
"""The beginning, the pieces, and the end."""
SAMPLE: Final = (3, FRAMES - 1)
"""A piece, and the end, while the file is looked into."""


@pytest.fixture
def anyio_backend() -> str:
    """The one backend with a server."""
    return "asyncio"


@pytest.fixture(scope="module")
def torpor(tmp_path_factory: pytest.TempPathFactory) -> Command:
    folder = tmp_path_factory.mktemp("attachments")
    Command(folder).run("init", "home")
    set_pace(folder / "home", 0)
    return Command(folder / "home")


@pytest.fixture(scope="module")
def server(torpor: Command) -> Iterator[ServerProcess]:
    with torpor.serving() as server:
        yield server


def test_files_go_with_a_message(torpor: Command, server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "scan.jpg").write_bytes(files.picture(2_000, 100))
    (tmp_path / "note.txt").write_text("open on Monday")
    (tmp_path / "film.mp4").write_bytes(files.MP4)
    said = torpor.run(
        "send", "--conversation", "c1", "--attach", f"{tmp_path}/scan.jpg", "--attach", f"{tmp_path}/note.txt"
    )
    assert said.stdout
    assert "attached scan.jpg (image/png), about 164 tokens; 2000 x 100 pixels became 1568 x 78" in said.stderr
    refused = torpor.complaint("send", "hello", "--conversation", "c1", "--attach", f"{tmp_path}/film.mp4")
    assert "film.mp4" in refused
    assert "a video or a sound recording" in refused
    assert "(attached scan.jpg (image/png))" in torpor.output("inspect", "c1", "--content")
    assert ", 2 blobs" in torpor.output("verify", "c1")


def test_operators_see_which_files_came_and_get_them(torpor: Command, server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("open on Monday")
    blob = hashlib.sha256(b"open on Monday").hexdigest()
    (said,) = torpor.facts("send", "--conversation", "c3", "--attach", f"{tmp_path}/note.txt")
    assert said["text"].startswith("That has arrived")
    assert said["attachments"] == [
        {"blob": blob, "media_type": "text/plain", "size_bytes": 14, "tokens": said["attachments"][0]["tokens"]}
        | {"name": "note.txt"}
    ]
    assert f", with 1 attachment: text/plain {blob[:12]}" in (shown := torpor.output("inspect", "c3"))
    assert "note.txt" not in shown
    (received,) = [row for row in torpor.facts("inspect", "c3") if row["kind"] == "message_received"]
    assert [each["blob"] for each in received["facts"]["attachments"]] == [blob]
    torpor.run("fetch", "c3", blob[:8], "--out", f"{tmp_path}/kept")
    assert (tmp_path / "kept").read_text() == torpor.output("fetch", "c3", blob) == "open on Monday"
    assert "is there already" in torpor.complaint("fetch", "c3", blob, "--out", f"{tmp_path}/kept")
    assert "no message of developer/c3 has a file '0000'" in torpor.complaint("fetch", "c3", "0000")
    with urllib.request.urlopen(torpor.output("link", "c3", blob[:8].upper()).strip(), timeout=DEADLINE_S) as answer:
        assert answer.read() == b"open on Monday"


def test_files_that_a_message_cannot_have_are_not_uploaded(
    torpor: Command, server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("open on Tuesday")
    files = ["--attach", f"{tmp_path}/a.txt"]
    told = [
        torpor.complaint("send", "look", "--conversation", "ann/c1", *files),
        torpor.complaint("send", "look", "--conversation", "c4", *33 * files),
    ]
    assert "ann/c1 is another's, and files can be sent to your own conversations only" in told[0]
    assert "the message has 33 files, expected at most 32" in told[1]
    assert not any("attached" in each for each in told)


class Killing:
    """Asks for a client, and kills the server while chosen requests are under way."""

    def __init__(self, client: TorporClient, server: ServerProcess, at: Callable[[int], bool]) -> None:
        self._client = client
        self._server = server
        self._at = at
        self._asked = 0
        self.kills = 0

    async def ask(self, frame: ClientFrame, kind: type[Any]) -> Any:
        number, self._asked = self._asked, self._asked + 1
        if not self._at(number):
            return await self._client._ask(frame, kind)
        answer: list[Any] = []

        async def ask() -> None:
            answer.append(await self._client._ask(frame, kind))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.to_thread.run_sync(self._server.kill)
            self.kills += 1
            await anyio.to_thread.run_sync(self._server.start)
        return answer[0]


async def sent_through(server: ServerProcess, name: str, at: Callable[[int], bool]) -> tuple[dict[str, Any], int]:
    """What comes of the file, and how often the server was killed meanwhile."""
    async with TorporClient(server.ready["url"], server.ready["token"]) as client:
        killing = Killing(client, server, at)
        by = client_files.Ask(client._ids.new_id, killing.ask)
        with anyio.fail_after(10 * DEADLINE_S):
            row = await client_files.upload(by, DATA, name=name, upload=name, piece_bytes=PIECE_BYTES)
            await client.send("c2", "look", attachments=[row["attachment"]])
            assert await client.fetch("c2", row["blob"]) == DATA
        return row, killing.kills


async def test_an_upload_outlives_the_server(server: ServerProcess) -> None:
    row, kills = await sent_through(server, "sample", SAMPLE.__contains__)
    assert kills == len(SAMPLE)
    assert row["blob"] == hashlib.sha256(DATA).hexdigest()


@pytest.mark.soak
@pytest.mark.parametrize("number", range(FRAMES))
async def test_an_upload_outlives_a_kill_at_every_piece(server: ServerProcess, number: int) -> None:
    row, kills = await sent_through(server, f"at-{number}", lambda at: at == number)
    assert (row["blob"], kills) == (hashlib.sha256(DATA).hexdigest(), 1)


@pytest.mark.soak
async def test_an_upload_outlives_a_kill_at_all_its_pieces(server: ServerProcess) -> None:
    row, kills = await sent_through(server, "all", lambda at: at < 2 * FRAMES)
    assert row["blob"] == hashlib.sha256(DATA).hexdigest()
    assert kills >= FRAMES
