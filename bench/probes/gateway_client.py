"""Many clients of one server in a process of their own: ``python -m bench.probes.gateway_client``.

It reads one order a line, ``{"do": NAME, ...}``, carries it out and prints what it found. Plain lines, since a slow
client would make the server wait. It speaks to the bare server as to the engine; only what it says differs.
"""

import json
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from bench.measure import Figures, quantile
from torpor.gateway.auth import mint
from torpor.records.frames import SUBPROTOCOL

_OPEN_S: Final = 60.0
_AT_ONCE: Final = 50
"""Handshakes at the same time, where opening is not what is measured."""
_OWNER: Final = "bench"


class _Event(msgspec.Struct):
    type: str
    event: int = 0
    at_us: int = 0


class _Frame(msgspec.Struct):
    frame: str
    event: _Event | int = 0
    """Of ``accepted`` it is a number."""
    code: str = ""

    @property
    def kind(self) -> str:
        """What the event is, of one that has one."""
        return self.event.type if isinstance(self.event, _Event) else ""


_DECODE: Final = msgspec.json.Decoder(_Frame).decode


class Caller:
    """One connection, and the conversation it is about."""

    def __init__(self, number: int, conversation: str) -> None:
        self.number = number
        self.conversation = conversation
        self.socket: ClientConnection
        self.sent = 0

    async def say(self, **frame: object) -> None:
        await self.socket.send(msgspec.json.encode(frame), text=True)

    async def hear(self) -> _Frame:
        heard = _DECODE(await self.socket.recv())
        if heard.frame == "error" or heard.kind == "turn.failed":
            raise RuntimeError(f"the server said {heard}")
        return heard

    async def until(self, *kinds: str) -> _Frame:
        """The first frame or event of such a kind."""
        while True:
            heard = await self.hear()
            if heard.frame in kinds or heard.kind in kinds:
                return heard


class Crowd:
    """All of them; a method for each order."""

    def __init__(self) -> None:
        self._url = ""
        self._secret = b""
        self._watches = ""
        self._callers: list[Caller] = []

    async def at(self, *, url: str, secret: str) -> Figures:
        """Where the server is from now on."""
        self._url, self._secret = url, bytes.fromhex(secret)
        return {}

    async def open(self, *, count: int, watch: str) -> Figures:
        """So many more; ``watch`` is ``none``, ``own`` for a conversation each, or ``one`` for one together."""
        self._watches = watch
        began, room = time.monotonic(), anyio.Semaphore(_AT_ONCE)
        first = len(self._callers)
        callers = [Caller(n, "c1" if watch == "one" else f"c{n}") for n in range(first, first + count)]

        async def one(caller: Caller) -> None:
            async with room:
                await self._connect(caller)

        self._callers += callers
        await _together(one, callers)
        return {"s": time.monotonic() - began}

    async def echo(self, *, connections: int, rounds: int) -> Figures:
        """A message after the other on each of them, every one answered."""

        async def one(caller: Caller) -> None:
            for _ in range(rounds):
                await self._send(caller)
                await caller.until("accepted", "send")

        began = time.monotonic()
        await _together(one, self._callers[:connections])
        return {"s": time.monotonic() - began, "echoes": connections * rounds}

    async def fan(self, *, turns: int) -> Figures:
        """The first one talks, and all hear it."""
        speaker = self._callers[0]
        heard = 0

        async def one(caller: Caller) -> None:
            nonlocal heard
            left = turns
            while left:
                frame = await caller.hear()
                heard += frame.frame == "event"
                if frame.kind == "turn.finished":
                    left -= 1
                    if left and caller is speaker:
                        await self._speak(caller)

        began = time.monotonic()
        await self._speak(speaker)
        await _together(one, self._callers)
        return {"s": time.monotonic() - began, "events": heard}

    async def talk(self, *, turns: int, spread_s: float) -> Figures:
        """Each has turns in its own conversation, begun over ``spread_s``; what its events took from their record."""
        took_us: list[float] = []
        deltas = 0

        async def one(caller: Caller) -> None:
            nonlocal deltas
            await anyio.sleep(spread_s * caller.number / len(self._callers))
            for _ in range(turns):
                await self._speak(caller)
                kind = ""
                while kind != "turn.finished":
                    heard = await caller.hear()
                    kind = heard.kind
                    deltas += heard.frame == "delta"
                    if isinstance(heard.event, _Event):
                        took_us.append(time.time_ns() // 1000 - heard.event.at_us)

        began = time.monotonic()
        await _together(one, self._callers)
        seconds = time.monotonic() - began
        p50, p99 = quantile(took_us, 0.5), quantile(took_us, 0.99)
        return {"s": seconds, "p50": p50, "p99": p99, "events": len(took_us), "deltas": deltas}

    async def resume(self, *, cursor: int) -> Figures:
        """All of them come back at once, after ``cursor``, to a server that has just started."""
        took_s: list[float] = []
        began = time.monotonic()

        async def one(caller: Caller) -> None:
            await caller.socket.close()
            await self._connect(caller, cursor=cursor)
            took_s.append(time.monotonic() - began)

        await _together(one, self._callers)
        return {"s": time.monotonic() - began, "p50": quantile(took_s, 0.5)}

    async def close(self) -> Figures:
        """Leave."""
        await _together(lambda caller: caller.socket.close(), self._callers)
        self._callers.clear()
        return {}

    async def _connect(self, caller: Caller, *, cursor: int | None = None) -> None:
        """Until the server has answered; with a cursor, until what it missed has come."""
        subprotocols = [Subprotocol(SUBPROTOCOL)] if self._secret else None
        caller.socket = await connect(
            self._url,
            subprotocols=subprotocols,
            compression=None,
            open_timeout=_OPEN_S,
            ping_interval=None,
            proxy=None,
        )
        if self._secret:
            await self._greet(caller, cursor=cursor)
            return
        await caller.say(frame="hello")
        await caller.hear()
        if self._watches == "one":
            await caller.socket.send("watch")

    async def _greet(self, caller: Caller, *, cursor: int | None) -> None:
        token = mint(
            self._secret, subject=f"user{caller.number}", owner=_OWNER, now_us=time.time_ns() // 1000, lifetime_s=3600
        )
        watched: list[dict[str, Any]] = []
        if self._watches != "none":
            watched = [{"conversation": caller.conversation}]
            if cursor is not None:
                watched[0]["cursor"] = {"epoch": 1, "event": cursor}
        await caller.say(frame="hello", token=token, subscriptions=watched)
        await caller.until("resumed", "reload") if watched else await caller.until("welcome")
        if cursor is not None:
            await caller.until("turn.finished")

    async def _send(self, caller: Caller) -> None:
        caller.sent += 1
        message_id = f"m_{caller.number}_{caller.sent}"
        await caller.say(frame="send", conversation=caller.conversation, message_id=message_id, text="hello there")

    async def _speak(self, caller: Caller) -> None:
        """Have a turn begin."""
        if self._secret:
            await self._send(caller)
        else:
            await caller.socket.send("say 1" if self._watches == "one" else "turn")


async def _together(work: Callable[[Caller], Coroutine[Any, Any, None]], callers: list[Caller]) -> None:
    async with anyio.create_task_group() as tasks:
        for caller in callers:
            tasks.start_soon(work, caller)


async def main() -> None:
    crowd = Crowd()
    while line := await anyio.to_thread.run_sync(sys.stdin.readline):
        order = json.loads(line)
        found = await getattr(crowd, order.pop("do"))(**order)
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    anyio.run(main)
