"""A second server takes a data directory over while sub-agents, and those that work for them, are at work in the first.

The kernel's lock lets no two servers into one directory, see ``store/test_sqlite_opening.py``. Where it fails them, as
on a file system that ignores locks, or when somebody has removed the file, the number of the start is the fence: the
second one counts it up, and nothing of the first one is written any more.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from tests.support.drain_server import LET_GO
from tests.support.effects_checker import lines_of
from tests.support.journal_checker import Record, read_journals
from tests.support.kill_judges import accounts_in, judged
from tests.support.kill_run import make_home
from tests.support.server_process import ServerProcess, process_of, server_process
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.store.sqlite.data_lock import LOCK_FILE

DEADLINE_S: Final = 60.0
PATH: Final = "default/developer/c0"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a home in it."""
    make_home(tmp_path / "home")
    return tmp_path


@asynccontextmanager
async def client_of(server: ServerProcess) -> AsyncIterator[TorporClient]:
    await server.until("ready")
    async with TorporClient(server.url, server.token, options=ClientOptions(backoff_s=0.05)) as client:
        yield client


def written(folder: Path) -> dict[str, list[Record]]:
    """All records, by journal."""
    return {path: journal.records for path, journal in read_journals(folder / "data" / "torpor.db").items()}


async def all_at_work(folder: Path) -> dict[str, list[Record]]:
    """All records, once the scout has looked something up and waits for the tracker, which waits for its model."""
    while True:
        records = written(folder)
        kinds = [records[path][-1]["kind"] for path in sorted(records, key=len)]
        if kinds == ["subagent_started", "tool_finished", "model_requested"]:
            return records
        await anyio.sleep(0.01)  # what was begun beside its commit is on record a little later


async def until_turns(client: TorporClient, count: int) -> None:
    while len(await client.turns()) != count:  # noqa: ASYNC110 - another process
        await anyio.sleep(0.01)


async def until_at_rest(client: TorporClient) -> None:
    while any(row["state"] != "rest" for row in await client.list()):  # noqa: ASYNC110 - another process
        await anyio.sleep(0.01)


@pytest.mark.parametrize(
    "learns", [pytest.param("from the reply of the lowest", marks=pytest.mark.soak), "from a message of a client"]
)
async def test_who_is_replaced_writes_nothing_and_ends_at_every_level_while_the_spawn_runs_again(
    learns: str, folder: Path
) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with (
            process_of("drain_server", "--hold", "tracker", folder=folder) as first,
            client_of(first) as client,
            anyio.create_task_group() as tasks,
        ):
            await client.send("c0", "c0 says: look [m1: scout_deep]", message_id="m1", agent="keeper")
            while "held" not in await first.fact():
                pass
            before = await all_at_work(folder)
            (folder / "data" / LOCK_FILE).unlink()

            async with server_process(folder) as second, client_of(second) as other:
                await second.until("idle")
                await until_at_rest(other)
                after = written(folder)
                asked = lines_of(folder / "home" / "model.jsonl")
                await until_turns(client, 1)
                if learns == "from the reply of the lowest":
                    (folder / "home" / LET_GO).touch()
                else:
                    tasks.start_soon(client.send, "c0", "c0 says: and? [m2]")  # of which it is told to try again
                await until_turns(client, 0)
                tasks.cancel_scope.cancel()
                assert written(folder) == after
                assert [line for line in lines_of(folder / "home" / "model.jsonl") if line["what"] == "started"] == [
                    line for line in asked if line["what"] == "started"
                ]
                with anyio.CancelScope(shield=True):
                    assert await second.stop()
                    assert await first.stop()

    faults, conversations = judged(folder)
    assert (faults, conversations) == ([], 1)
    assert written(folder) == after
    old = [path for path in before if path != PATH]
    assert {path: after[path] for path in old} == {path: before[path] for path in old}
    own = accounts_in(folder)[PATH]
    assert [record.get("code", "") for record in own.children_ended] == ["lost", ""]
    assert [turn.end for turn in own.turns.values()] == ["finished"]
