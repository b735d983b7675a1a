"""A server to measure, as a process of its own: ``python -m bench.probes.gateway_host KIND DATA [WORDS PACE_S]``.

Kinds: ``bare`` is a plain ``websockets`` server, the floor; ``torpor`` is the whole server around a model that says
``WORDS`` words, one in ``PACE_S``; in ``mailbox`` an actor that answers at once takes the place of everything behind
its mailbox. It prints where it listens, then for each line it reads, what it used until now.

The bare server echoes, except for three messages: ``watch`` adds its connection to those that ``say N`` sends N events
to, and ``turn`` streams what a turn of the engine would send.
"""

import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
import structlog
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from bench.measure import resident_bytes
from bench.work import SMALL_TURN, prose
from torpor import app
from torpor.actor.mailbox import Mailbox, PendingReply
from torpor.gateway.subscription import Ports
from torpor.local_files import read_secret
from torpor.records.commands import Command, Receipt, SendMessage
from torpor.records.ids import ConversationKey
from torpor.settings import read_settings

EVENT_CHARS: Final = SMALL_TURN.reply_chars
"""Of a reply."""
_AGENT: Final = """
name = "bench"
default = true
system = "You tell stories."
[model]
kind = "scripted"
rehearsal = "bench"
"""
_REHEARSAL: Final = """
pace_cps = {pace_cps}
[[rule]]
[[rule.step]]
say = "{text}"
"""
_MANY: Final = "100000"
_LIMITS: Final = {
    "TORPOR__TURN__MODEL_CALLS_MAX": _MANY,
    "TORPOR__TURN__MODEL_CALLS_PER_OWNER_MAX": _MANY,
    "TORPOR__SUPERVISOR__LIVE_MAX": _MANY,
    "TORPOR__GATEWAY__FRAMES_PER_S": _MANY,
    "TORPOR__GATEWAY__FRAMES_BURST": _MANY,
    "TORPOR__GATEWAY__PORT": "0",
}
"""What would measure a bound instead of a cost."""
_NOTHING: Final = app.Wrapping()
Address = dict[str, str]


class AnsweredAtOnce:
    """Implements ``Conversations`` for one mailbox, whose actor does nothing but answer."""

    def __init__(self, ports: Ports) -> None:
        self._conversations = ports.conversations
        self._mailbox = Mailbox(capacity=10_000, retry_after_s=1.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conversations, name)

    def post(self, key: ConversationKey, command: Command) -> PendingReply:
        reply = PendingReply(command)
        self._mailbox.offer(reply)
        return reply

    async def run(self) -> None:
        while True:
            for reply in await self._mailbox.receive():
                assert isinstance(reply.command, SendMessage)
                reply.resolve(Receipt(message_id=reply.command.message_id, event=1, at_us=1))


@asynccontextmanager
async def mailbox(data: Path, *, words: int) -> AsyncIterator[Address]:
    """The server with nothing behind the mailbox."""
    answering: list[AnsweredAtOnce] = []

    def wrap(ports: Ports) -> Ports:
        answering.append(AnsweredAtOnce(ports))
        return msgspec.structs.replace(ports, conversations=answering[0])

    server = torpor(data, words=words, pace_s=0.0, wrapping=app.Wrapping(gateway=wrap))
    async with server as address, anyio.create_task_group() as tasks:
        tasks.start_soon(answering[0].run)
        yield address
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def torpor(data: Path, *, words: int, pace_s: float, wrapping: app.Wrapping = _NOTHING) -> AsyncIterator[Address]:
    """The whole server, with its home and its data in ``data``."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    config = data / "home" / "config"
    for name, text in (("agents", _AGENT), ("rehearsals", _rehearsal(words, pace_s=pace_s))):
        (config / name).mkdir(parents=True, exist_ok=True)
        (config / name / "bench.toml").write_text(text)
    settings = read_settings(data / "home", _LIMITS)
    async with app.running(settings, data=data / "data", wrapping=wrapping) as server:
        secret = read_secret(data / "data")
        assert secret is not None
        yield {"url": server.url, "secret": secret.hex()}


def _rehearsal(words: int, *, pace_s: float) -> str:
    text = " ".join(prose(12 * words).split()[:words]) if pace_s else prose(EVENT_CHARS)
    return _REHEARSAL.format(text=text, pace_cps=round(len(text) / words / pace_s) if pace_s else 0)


class Bare:
    """The floor; see the module docstring."""

    def __init__(self, words: int, *, pace_s: float) -> None:
        self._words = words
        self._pace_s = pace_s
        self._watchers: list[ServerConnection] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Address]:
        async with serve(
            self._converse, "127.0.0.1", 0, compression=None, backlog=1024, open_timeout=60, server_header=None
        ) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            yield {"url": f"ws://127.0.0.1:{port}", "secret": ""}

    async def _converse(self, connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            await self._serve(connection)

    async def _serve(self, connection: ServerConnection) -> None:
        async for message in connection:
            match str(message).split():
                case ["watch"]:
                    self._watchers.append(connection)
                case ["say", count]:
                    await self._say(int(count))
                case ["turn"]:
                    await self._turn(connection)
                case _:
                    await connection.send(message)

    async def _say(self, count: int) -> None:
        for _ in range(count):
            for turn in ("message.received", "turn.started", "reply.finished", "turn.finished"):
                frame = _event(turn)
                for watcher in self._watchers:
                    await watcher.send(frame)

    async def _turn(self, connection: ServerConnection) -> None:
        await connection.send(_event("message.received"))
        await connection.send(_event("turn.started"))
        for number in range(self._words):
            await anyio.sleep(self._pace_s)
            delta = {"frame": "delta", "conversation": "c1", "call": "1-1-1", "offset": number * 6, "text": "words "}
            await connection.send(json.dumps(delta))
        await connection.send(_event("reply.finished"))
        await connection.send(_event("turn.finished"))


def _event(kind: str) -> str:
    text = prose(EVENT_CHARS if kind == "reply.finished" else SMALL_TURN.user_chars)
    event = {"type": kind, "event": 1, "at_us": time.time_ns() // 1000, "text": text}
    return json.dumps({"frame": "event", "conversation": "c1", "epoch": 1, "event": event})


def used() -> Mapping[str, float]:
    """CPU seconds and resident bytes; ``again_s`` is where CPU seconds start again, once that was found out."""
    cpu_s = time.process_time()
    size_bytes = resident_bytes()
    return {"cpu_s": cpu_s, "bytes": size_bytes, "again_s": time.process_time()}


async def main(kind: str, data: Path, words: int, pace_s: float) -> None:
    kinds: dict[str, Callable[[], AbstractAsyncContextManager[Address]]] = {
        "bare": Bare(words, pace_s=pace_s).serving,
        "mailbox": partial(mailbox, data, words=words),
        "torpor": partial(torpor, data, words=words, pace_s=pace_s),
    }
    async with kinds[kind]() as address:
        print(json.dumps(address), flush=True)
        while await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
            print(json.dumps(used()), flush=True)


if __name__ == "__main__":
    _kind, _data, *_rest = sys.argv[1:]
    anyio.run(main, _kind, Path(_data), int(_rest[0]) if _rest else 0, float(_rest[1]) if _rest else 0.0)
