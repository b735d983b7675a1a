"""A server that is told to stop in the middle of anything answers every message once, in this life or the next.

The step that is under way is held: it ends while the server drains, or outlasts the deadline and is cut off, or the
process is killed before that. What the judges of the kill test find afterwards is nothing.
"""

import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from tests.support.drain_server import LET_GO, POINTS
from tests.support.gate import Gate, open_gate
from tests.support.journal_checker import Account
from tests.support.kill_judges import accounts_in, judged
from tests.support.kill_run import make_home
from tests.support.server_process import ServerProcess, process_of
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.records.commands import Receipt

DEADLINE_S: Final = 60.0
LONG: Final = "and take your time about it, since there is a lot of it. " * 6
DOINGS: Final = {2: "pay_keyed", 3: "pay_blindly", 4: "pay_probed", 5: "scout_deep"}
"""By the number of the message that asks for it; the last has a sub-agent work that has one of its own."""
MESSAGES: Final = 9
"""Enough for a summary, a live context, tools and snapshots."""
ENDINGS: Final = ("in time", "cut off", "killed")
SAMPLE: Final = {
    ("model", "in time"),
    ("tool", "cut off"),
    ("tool", "killed"),
    ("summary", "killed"),
    ("job", "cut off"),
    ("snapshot", "in time"),
    ("child", "killed"),
    ("tracker", "in time"),
    ("tracker", "cut off"),
}
"""Every point and every ending; the other pairs are for the long run."""
PATH: Final = "default/developer/c0"
_IMPATIENT: Final = ClientOptions(backoff_s=0.05, backoff_max_s=0.1)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a home in it."""
    make_home(tmp_path / "home")
    return tmp_path


class Talk:
    """One conversation: sends one message after the other, each as soon as the one before it is accepted."""

    def __init__(self, client: TorporClient) -> None:
        self._client = client
        self.receipts: dict[str, Receipt] = {}
        self.is_over = anyio.Event()

    async def go_on(self) -> None:
        for number in range(1, MESSAGES + 1):
            wish = f"m{number}: {DOINGS[number]}" if number in DOINGS else f"m{number}"
            text = f"c0 says: say something {LONG} [{wish}]"
            self.receipts[f"m{number}"] = await self._client.send("c0", text, message_id=f"m{number}", agent="keeper")
        self.is_over.set()

    async def rest(self) -> None:
        """Wait until everything is answered."""
        await self.is_over.wait()
        while any(row["state"] != "rest" for row in await self._client.list()):  # noqa: ASYNC110 - another process
            await anyio.sleep(0.02)


def is_ready(server: ServerProcess) -> int:
    """The status of ``/readyz``."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/readyz", timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        return exc.code


async def until_unready(server: ServerProcess) -> None:
    while await anyio.to_thread.run_sync(is_ready, server) != 503:  # noqa: ASYNC110 - another process
        await anyio.sleep(0.01)


async def end(server: ServerProcess, ending: str, *, folder: Path) -> dict[str, int]:
    """Tell it to stop where it is held, and let it end as ``ending`` says; its last words."""
    server.signal_stop()
    if ending != "cut off":
        await until_unready(server)
    if ending == "killed":
        await server.kill()
        return {}
    if ending == "in time":
        (folder / "home" / LET_GO).touch()
    while "ended" not in (fact := await server.fact()):
        pass
    assert await server.exit_code() == 0
    return fact


async def live_twice(folder: Path, *, point: str, ending: str, gate: Gate) -> tuple[dict[str, int], Talk]:
    """A life that is ended at ``point``, and one that comes to rest; the last words of the first, and what was said."""
    hold = ("--hold", point, "--deadline-s", "0.2" if ending == "cut off" else "60")
    async with anyio.create_task_group() as tasks:
        async with process_of("drain_server", *hold, folder=folder) as server:
            await server.until("ready")
            gate.open(server.port)
            client = await tasks.start(_connected, gate.url, server.token)
            talk = Talk(client)
            tasks.start_soon(talk.go_on)
            while not (await server.fact()).get("held"):
                pass
            told = await end(server, ending, folder=folder)
        gate.shut()
        (folder / "home" / LET_GO).touch()
        async with process_of("drain_server", folder=folder) as server:
            await server.until("ready")
            gate.open(server.port)
            await talk.rest()
            assert await server.stop()
        tasks.cancel_scope.cancel()
    return told, talk


async def _connected(
    url: str, token: str, *, task_status: anyio.abc.TaskStatus[TorporClient] = anyio.TASK_STATUS_IGNORED
) -> None:
    async with TorporClient(url, token, options=_IMPATIENT) as client:
        task_status.started(client)
        await anyio.sleep_forever()


def sub_agents_at_work(accounts: dict[str, Account], *, point: str, ending: str) -> None:
    """One answered, and it had one work that answered; those that a stop caught came to nothing.

    A model may be asked while the records that ask it are on their way to the disk, so a kill can leave of the one
    whose model is held no more than its parent's word that it began.
    """
    own = accounts[PATH]
    codes = [record.get("code", "") for record in own.children_ended]
    is_caught = point in {"child", "tracker"} and ending != "in time"
    assert codes == (["lost", ""] if is_caught else [""])
    begun = {f"{path}/{record['child']}" for path, account in accounts.items() for record in account.children_begun}
    of_own = {path for path in begun if path.count("/") == PATH.count("/") + 1}
    assert len(of_own) == len(codes)
    assert len(begun - of_own) == (2 if point == "tracker" and is_caught else 1)
    unwritten = begun - accounts.keys()
    held = _held_and_lost(accounts, point=point) if is_caught and ending == "killed" else set()
    assert unwritten <= held


def _held_and_lost(accounts: dict[str, Account], *, point: str) -> set[str]:
    """The path of the sub-agent whose model was held."""
    lost = next(f"{PATH}/{record['child']}" for record in accounts[PATH].children_ended if record.get("code") == "lost")
    if point == "child":
        return {lost}
    return {f"{lost}/{record['child']}" for record in accounts[lost].children_begun}


@pytest.mark.parametrize(
    ("point", "ending"),
    [
        pytest.param(point, ending, marks=[] if (point, ending) in SAMPLE else pytest.mark.soak)
        for point in POINTS
        for ending in ENDINGS
    ],
)
async def test_a_server_stopped_in_the_middle_of_anything_answers_every_message_once(
    point: str, ending: str, folder: Path
) -> None:
    with anyio.fail_after(DEADLINE_S):
        async with open_gate() as gate:
            told, talk = await live_twice(folder, point=point, ending=ending, gate=gate)

    faults, _ = judged(folder)
    assert faults == []
    accounts = accounts_in(folder)
    account = accounts[PATH]
    sub_agents_at_work(accounts, point=point, ending=ending)
    assert set(account.messages) == set(talk.receipts) == {f"m{number}" for number in range(1, MESSAGES + 1)}
    assert [turn.end for turn in account.turns.values()] == ["finished"] * MESSAGES
    if ending != "killed":
        is_turn = point not in {"job", "snapshot"}
        assert told["cut_off"] == int(ending == "cut off" and is_turn)
    if ending == "in time":
        again = [turn.number for turn in account.turns.values() if turn.attempts_max > 1]
        assert again == [], "a step that ended is not made again"
        assert {call.outcome for call in account.calls.values()} == {"succeeded"}
