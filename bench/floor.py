"""The floor: the same turns by plain lines, so that every figure of the engine stands beside an honest one.

One task and one memory stream per conversation, msgspec records, one SQLite row per step, one writer thread that
commits whatever waits in one flush. It fences nothing, publishes nothing, recovers nothing and remembers no message
id. A turn of two tools costs it four rows: message, first reply, results, last reply.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Final, Literal

import anyio
import anyio.from_thread
import anyio.lowlevel
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream

from bench.work import Script, prose
from torpor.records.blocks import Block, head_of, text_block, tool_result_block

_SCHEMA: Final = """CREATE TABLE IF NOT EXISTS journal(
    id INTEGER PRIMARY KEY, conversation TEXT NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE(conversation, seq))"""
_INSERT: Final = "INSERT INTO journal(conversation, seq, body) VALUES(?, ?, ?)"


class Said(msgspec.Struct, frozen=True):
    """One record: what was added to the conversation in one step."""

    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]


class Writer:
    """One thread, one connection, one flush for everything that waits."""

    def __init__(self, path: Path, token: anyio.lowlevel.EventLoopToken) -> None:
        self.rows: SimpleQueue[tuple[str, int, bytes, anyio.Event] | None] = SimpleQueue()
        self._path, self._token = path, token

    def run(self) -> None:
        connection = sqlite3.connect(self._path, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(_SCHEMA)
        is_open = True
        while is_open:
            group = [self.rows.get()]
            while self.rows.qsize():
                group.append(self.rows.get())
            rows = [row for row in group if row is not None]
            is_open = len(rows) == len(group)
            if rows:
                connection.execute("BEGIN IMMEDIATE")
                connection.executemany(_INSERT, [row[:3] for row in rows])
                connection.execute("COMMIT")
                anyio.from_thread.run_sync(_wake, [row[3] for row in rows], token=self._token)
        connection.close()


class Conversation:
    """A task that owns its messages."""

    def __init__(self, name: str, writer: Writer, script: Script, *, latency_s: float) -> None:
        self._name, self._writer, self._script, self._latency_s = name, writer, script, latency_s
        self.messages: list[Said] = []
        self._turns = 0

    async def run(self, inbox: MemoryObjectReceiveStream[tuple[str, anyio.Event]]) -> None:
        async with inbox:
            async for text, done in inbox:
                await self._turn(text)
                done.set()

    async def _turn(self, text: str) -> None:
        self._turns += 1
        await self._say(Said("user", (text_block(text),)))
        for round_ in range(1, 3):
            await anyio.sleep(self._latency_s)
            answer = self._script.answer(turn=self._turns, round_=round_)
            await self._say(Said("assistant", answer.blocks))
            if answer.stop_reason != "tool_use":
                return
            results: dict[str, Block] = {}
            async with anyio.create_task_group() as tasks:
                for head in map(head_of, answer.blocks):
                    tasks.start_soon(_look_up, head.id, results)
            await self._say(Said("user", tuple(results.values())))

    async def _say(self, said: Said) -> None:
        self.messages.append(said)
        event = anyio.Event()
        self._writer.rows.put((self._name, len(self.messages), msgspec.json.encode(said), event))
        await event.wait()


def _wake(events: list[anyio.Event]) -> None:
    for event in events:
        event.set()


async def _look_up(call_id: str, results: dict[str, Block]) -> None:
    await anyio.lowlevel.checkpoint()
    results[call_id] = tool_result_block(call_id, prose(85), is_error=False)


@contextmanager
def writing(path: Path) -> Iterator[Writer]:
    """A writer for the running event loop."""
    writer = Writer(path, anyio.lowlevel.current_token())
    thread = Thread(target=writer.run, name="floor writer")
    thread.start()
    try:
        yield writer
    finally:
        writer.rows.put(None)
        thread.join()


def load(path: Path, name: str) -> list[Said]:
    """The messages of a conversation, row by row."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT body FROM journal WHERE conversation = ? ORDER BY seq", (name,))
        return [msgspec.json.decode(body, type=Said) for (body,) in rows]
