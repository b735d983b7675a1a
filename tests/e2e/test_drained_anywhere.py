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
from tests.support.effects_checker import deeds_of, effect_faults, lines_of
from tests.support.gate import Gate, open_gate
from tests.support.journal_checker import Account, account_of, answer_faults, journal_faults, read_journals
from tests.support.kill_run import make_home
from tests.support.server_process import ServerProcess, process_of
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.records.commands import Receipt

DEADLINE_S: Final = 60.0
LONG: Final = "and take your time about it, since there is a lot of it. " * 6
PAYS: Final = {2: "pay_keyed", 3: "pay_blindly", 4: "pay_probed"}
"""By the number of the message that asks for it."""
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
}
"""Every point and every ending; the other pairs are for the long run."""
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
            wish = f"m{number}: {PAYS[number]}" if number in PAYS else f"m{number}"
            text = f"Say something {LONG} [{wish}]"
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


def judged(folder: Path) -> tuple[Account, list[str]]:
    """What the journal says happened, and what is wrong with it."""
    ((path, journal),) = read_journals(folder / "data" / "torpor.db").items()
    account = account_of(journal)
    deeds = deeds_of(lines_of(folder / "home" / "book.jsonl"))
    faults = [*journal_faults(journal, account), *answer_faults(path, account), *effect_faults({path: account}, deeds)]
    return account, faults


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

    account, faults = judged(folder)
    assert faults == []
    assert set(account.messages) == set(talk.receipts) == {f"m{number}" for number in range(1, MESSAGES + 1)}
    assert [turn.end for turn in account.turns.values()] == ["finished"] * MESSAGES
    if ending != "killed":
        is_turn = point in {"model", "tool", "summary"}
        assert told["cut_off"] == int(ending == "cut off" and is_turn)
    if ending == "in time":
        again = [turn.number for turn in account.turns.values() if turn.attempts_max > 1]
        assert again == [], "a step that ended is not made again"
        assert {call.outcome for call in account.calls.values()} == {"succeeded"}
