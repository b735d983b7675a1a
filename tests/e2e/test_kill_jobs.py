"""A server that is killed in the middle of a job runs it again at its next start, and loses none."""

import shutil
from collections import Counter
from pathlib import Path

import anyio
import pytest

from tests.support.kill_run import HOME
from tests.support.server_process import ServerProcess, process_of
from torpor.client.torpor_client import TorporClient
from torpor.store.sqlite.reader import open_to_read

DEADLINE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a home in it."""
    shutil.copytree(HOME, tmp_path / "home")
    return tmp_path


def book(folder: Path, word: str) -> list[tuple[str, int]]:
    """What the jobs wrote that they ``began`` or ``did``, with the attempt."""
    path = folder / "book"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(name, int(attempt)) for what, name, attempt in lines if what == word]


async def talk(server: ServerProcess, *, conversations: range) -> None:
    """A message in each, acknowledged when this returns."""
    async with TorporClient(server.url, server.token) as client:
        for number in conversations:
            await client.send(f"c{number}", "hello")


async def done(folder: Path, *, count: int) -> None:
    """Return once that many jobs were done, and the store has heard of it."""
    with anyio.fail_after(DEADLINE_S):
        while len({name for name, _ in book(folder, "did")}) < count or jobs_left(folder):  # noqa: ASYNC110 - in another process
            await anyio.sleep(0.02)


def jobs_left(folder: Path) -> int:
    with open_to_read(folder / "data") as reader:
        return len(reader.every_job.list_jobs(limit=100))


async def test_every_job_is_done_though_the_server_is_killed_in_the_middle_of_one_again_and_again(
    folder: Path,
) -> None:
    held: list[str] = []
    with anyio.fail_after(DEADLINE_S):
        for life in range(3):
            async with process_of("job_server", "--hold", "2", folder=folder) as server:
                await server.until("ready")
                await talk(server, conversations=range(4 * life, 4 * life + 4))
                while not (fact := await server.fact()).get("held"):
                    pass
                held.append(fact["held"])
                await server.kill()
        async with process_of("job_server", folder=folder) as server:
            await server.until("ready")
            await done(folder, count=12)
            await server.stop()
    assert {name for name, _ in book(folder, "did")} == {f"c{number}/turn-1" for number in range(12)}
    began = Counter(name for name, _ in book(folder, "began"))
    assert [name for name in held if began[name] < 2] == []
    attempts = {name: [attempt for of, attempt in book(folder, "began") if of == name] for name in began}
    # One may be counted and its process killed before it began.
    assert [counted for counted in attempts.values() if counted != sorted(set(counted))] == []


async def test_a_job_that_a_stop_cuts_off_runs_at_the_next_start_as_its_first_attempt(folder: Path) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with process_of("job_server", "--hold", "1", folder=folder) as server:
            await server.until("ready")
            await talk(server, conversations=range(1))
            while not (await server.fact()).get("held"):
                pass
            assert await server.stop()
        assert jobs_left(folder) == 1
        async with process_of("job_server", folder=folder) as server:
            await server.until("ready")
            await done(folder, count=1)
            await server.stop()
    assert book(folder, "began") == [("c0/turn-1", 1)] * 2
