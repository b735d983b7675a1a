"""Recorded conversations, said again by clients to a real server, with a sleep, a restart and a kill in the middle.

Every conversation says the first part of its turns and sleeps, and the server is started anew; then it goes on, the
server is killed while turns run, and it says the rest. What is left is compared with the recordings.
"""

import resource
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from tests.support.client_checker import client_faults
from tests.support.effects_checker import lines_of, model_faults
from tests.support.gate import Gate, open_gate
from tests.support.journal_checker import account_of, journal_faults, read_journals, text_of
from tests.support.recordings import Recording, keep_recordings
from tests.support.server_process import Fault, ServerProcess, server_process
from tests.support.speaker import FINISHED, Follower, path_of
from torpor.client.options import ClientOptions
from torpor.client.torpor_client import TorporClient
from torpor.records.frames import Cursor
from torpor.records.ids import MessageId

HOME = Path(__file__).parent / "replay_home"
DEADLINE_S = 170.0
AT_ONCE = 8
"""Conversations that speak side by side."""
WATCHED_MAX = 40
"""Conversations of one client."""
_IMPATIENT = ClientOptions(backoff_s=0.05, backoff_max_s=0.1)
Line = tuple[str, str]
"""Who says what: ``user``, ``assistant`` or ``tool``."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What a run took."""

    conversations: int
    turns: int
    requests: int
    text_bytes: int
    """Said by users, assistant and tools."""
    stored_bytes: int
    """Database, write-ahead log and blobs, while the server still runs."""
    turn_cpu_s: float
    """Of the servers, without their starts."""
    start_cpu_s: float
    restarts: int


@dataclass(kw_only=True)
class Talk:
    """One recording being said."""

    recording: Recording
    client: TorporClient
    follower: Follower
    said: int = 0
    inspected: tuple[dict[str, Any], ...] = ()

    @property
    def path(self) -> str:
        return path_of(self.recording.name)


class ReplayRun:
    """A folder with a home and a data folder of its own, and the recordings that are said there."""

    def __init__(self, folder: Path, recordings: Sequence[Recording], *, is_logged: bool = True) -> None:
        """Args: is_logged: keep every request, which the judges want and which takes time."""
        self._folder = folder
        self._data = folder / "data"
        self._home = folder / "home"
        self._recordings = recordings
        self._model = "replaying" if is_logged else "replaying-unlogged"
        self._talks: list[Talk] = []
        self._heard: list[dict[str, Any]] = []
        self._start_cpu_s = 0.0
        self._lives = 0
        self._are_said = anyio.Event()
        shutil.copytree(HOME, self._home)
        keep_recordings(self._home, recordings)

    async def play(self) -> Figures:
        """Say everything and write down what it took."""
        before_s = _children_cpu_s()
        with anyio.fail_after(DEADLINE_S):
            async with open_gate() as gate, AsyncExitStack() as clients:
                async with self._serving(gate) as server:
                    await self._join(clients, gate.url, server.token)
                    await self._say(_half)
                    await self._each(self._sleep)
                    assert await server.stop()
                stored_bytes = await self._say_the_rest(gate)
        return self._figures(stored_bytes=stored_bytes, cpu_s=_children_cpu_s() - before_s)

    def faults(self) -> list[str]:
        """What the judges find, and where what was said differs from what was recorded."""
        journals = read_journals(self._data / "torpor.db")
        accounts = {path: account_of(journal) for path, journal in journals.items()}
        found = [fault for path in journals for fault in journal_faults(journals[path], accounts[path])]
        found += model_faults(journals, accounts, lines_of(self._home / "model.jsonl"))
        found += client_faults(journals, accounts, self._heard)
        for talk in self._talks:
            said = _recorded(talk.recording)
            found += _differences(f"inspect {talk.path}", list(_inspected(talk.inspected)), said)
            events = [line["event"] for line in self._heard if line["what"] == "event" and line["path"] == talk.path]
            heard = [line for line in said if line[0] != "tool"]
            found += _differences(f"events of {talk.path}", list(_told(events)), heard)
        return found

    @asynccontextmanager
    async def _serving(self, gate: Gate, *, fault: Fault | None = None) -> AsyncIterator[ServerProcess]:
        async with server_process(self._folder, fault=fault, model=self._model, is_fork=False) as server:
            assert await server.until("idle")
            self._lives += 1
            self._start_cpu_s += server.start_cpu_s
            gate.open(server.port)
            try:
                yield server
            finally:
                gate.shut()

    async def _join(self, clients: AsyncExitStack, url: str, token: str) -> None:
        tasks = await clients.enter_async_context(anyio.create_task_group())
        clients.callback(tasks.cancel_scope.cancel)
        for first in range(0, len(self._recordings), WATCHED_MAX):
            client = await clients.enter_async_context(TorporClient(url, token, options=_IMPATIENT))
            for recording in self._recordings[first : first + WATCHED_MAX]:
                follower = Follower(client, recording.name, name="speaker", log=self._heard.append)
                self._talks.append(Talk(recording=recording, client=client, follower=follower))
                tasks.start_soon(follower.follow, Cursor(event=0))

    async def _say_the_rest(self, gate: Gate) -> int:
        """Be killed half-way through it; returns the bytes stored at the end."""
        replies = sum(len(turn.replies) for each in self._recordings for turn in each.turns[_half(each) :])
        fault = Fault(point="append.after:model_replied", nth=max(1, replies // 2))
        async with anyio.create_task_group() as saying:
            async with self._serving(gate, fault=fault) as server:
                saying.start_soon(self._say, _whole)
                assert await server.until("held")
                gate.shut()
                await server.kill()
            async with self._serving(gate) as server:
                await self._are_said.wait()
                stored_bytes = _stored_bytes(self._data)
                await self._each(self._inspect)
                assert await server.stop()
        return stored_bytes

    async def _say(self, until: Callable[[Recording], int]) -> None:
        async def say(talk: Talk) -> None:
            while talk.said < until(talk.recording):
                await self._say_turn(talk)

        await self._each(say)
        if until is _whole:
            self._are_said.set()

    async def _say_turn(self, talk: Talk) -> None:
        text = talk.recording.users[talk.said]
        talk.said += 1
        message = f"m{talk.said}"
        note = {"path": talk.path, "id": message}
        self._heard.append(note | {"what": "sent", "text": text, "ends": [FINISHED]})
        receipt = await talk.client.send(talk.recording.name, text, message_id=MessageId(message))
        self._heard.append(note | {"what": "accepted", "event": receipt.event})
        await talk.follower.until(lambda: talk.follower.is_over(message))

    async def _sleep(self, talk: Talk) -> None:
        await talk.client.hibernate(talk.path, deadline_s=10.0)

    async def _inspect(self, talk: Talk) -> None:
        talk.inspected = await talk.client.inspect(talk.path)

    async def _each(self, do: Callable[[Talk], Awaitable[None]]) -> None:
        """For every talk, ``AT_ONCE`` side by side."""
        waiting = list(self._talks)

        async def work() -> None:
            while waiting:
                await do(waiting.pop(0))

        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE):
                tasks.start_soon(work)

    def _figures(self, *, stored_bytes: int, cpu_s: float) -> Figures:
        said = [line for recording in self._recordings for line in _recorded(recording)]
        turns = [turn for recording in self._recordings for turn in recording.turns]
        return Figures(
            conversations=len(self._recordings),
            turns=len(turns),
            requests=sum(len(turn.replies) for turn in turns),
            text_bytes=sum(len(text.encode()) for _, text in said),
            stored_bytes=stored_bytes,
            turn_cpu_s=cpu_s - self._start_cpu_s,
            start_cpu_s=self._start_cpu_s,
            restarts=self._lives - 1,
        )


def _half(recording: Recording) -> int:
    return len(recording.turns) // 2


def _whole(recording: Recording) -> int:
    return len(recording.turns)


def _recorded(recording: Recording) -> list[Line]:
    lines: list[Line] = []
    for turn in recording.turns:
        lines.append(("user", turn.user))
        for reply in turn.replies:
            lines += [("assistant", reply.text)] if reply.text else []
            lines += (("tool", result) for result in reply.results)
    return lines


def _inspected(rows: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """The records of a journal as the operator's frame gives them, read as a transcript."""
    for row in rows:
        if row["kind"] == "message_received":
            yield "user", text_of(row["blocks"])
        elif row["kind"] == "model_replied" and (text := text_of(row["blocks"])):
            yield "assistant", text
        elif row["kind"] == "tool_finished":
            yield "tool", row["block"]["content"]


def _told(events: Sequence[dict[str, Any]]) -> Iterator[Line]:
    """What a client is told, read as a transcript; it is not told what tools returned."""
    for event in events:
        if event["type"] == "message.received":
            yield "user", event["text"]
        elif event["type"] == "reply.finished" and event["text"]:
            yield "assistant", event["text"]


def _differences(where: str, found: list[Line], expected: list[Line]) -> list[str]:
    if found == expected:
        return []
    at = next((at for at, pair in enumerate(zip(found, expected, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        return [f"{where}: has {len(found)} lines, expected {len(expected)}"]
    return [f"{where}: line {at} is {found[at]!r}, expected {expected[at]!r}"]


def _children_cpu_s() -> float:
    """Of processes that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _stored_bytes(data: Path) -> int:
    files = [*data.glob("torpor.db*"), *(data / "blobs").rglob("*")]
    return sum(file.stat().st_size for file in files if file.is_file())
