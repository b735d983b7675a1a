"""An operator in the storm, who puts conversations to sleep and wakes them, and lists what there is."""

import json
import random
from collections import Counter
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

from tests.support.storm_guest import OPEN_S, Scene

ANSWER_S = 30.0
TRANSIENT = frozenset({"not_now", "unavailable", "busy", "too_many_frames", "unknown_conversation"})
"""The last one while nobody has said anything in it yet."""


class Operator:
    """Over one connection after the other."""

    def __init__(self, scene: Scene, token: str, *, chance: random.Random) -> None:
        self._scene = scene
        self._token = token
        self._chance = chance

    async def meddle(self, paths: list[str]) -> None:
        """With conversations as they come, until the storm is over."""
        while not self._scene.is_over:
            try:
                async with await self._connected() as socket:
                    while self._scene.is_storming:
                        path = self._chance.choice(paths)
                        frame = self._chance.choice(["hibernate"] * 6 + ["thaw", "inspect"])
                        more = {"deadline_s": self._chance.uniform(0.05, 1.0)} if frame == "hibernate" else {}
                        outcome = await self._ask(socket, frame=frame, path=path, **more)
                        self._scene.count[f"{frame}: {outcome}"] += 1
                        await self._scene.pause(self._chance.uniform(0.01, 0.2))
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed) as exc:
                self._scene.count[f"an operator was cut off by {type(exc).__name__}"] += 1
            await self._scene.pause(self._chance.uniform(0.05, 0.5))

    async def put_to_sleep(self, paths: list[str]) -> None:
        """All of them, however long it takes. Raises: AssertionError: one cannot be."""
        left = list(paths)
        while left:
            try:
                await self._put_to_sleep(left)
            except (OSError, TimeoutError, InvalidHandshake, ConnectionClosed):
                await anyio.sleep(0.5)  # the server is busy with those who have just left

    async def _put_to_sleep(self, left: list[str]) -> None:
        async with await self._connected() as socket:
            while left:
                path = left[-1]
                while (outcome := await self._ask(socket, frame="hibernate", path=path, deadline_s=5.0)) != "done":
                    assert outcome in TRANSIENT, f"{path}: {outcome}"
                    await anyio.sleep(0.1)
                left.pop()

    async def _connected(self) -> ClientConnection:
        socket = await connect(
            self._scene.url,
            subprotocols=[Subprotocol("torpor.v1")],
            proxy=None,
            open_timeout=OPEN_S,
            close_timeout=1,
            ping_interval=None,
            max_size=None,
        )
        await socket.send(json.dumps({"frame": "hello", "token": self._token}))
        await socket.recv()
        return socket

    async def _ask(self, socket: ClientConnection, **frame: Any) -> str:
        """What kind of answer comes, or the code of the refusal."""
        await socket.send(json.dumps({"ref": "1", **frame}))
        with anyio.fail_after(ANSWER_S):
            answer = json.loads(await socket.recv())
        return str(answer["code"] if answer["frame"] == "error" else answer["frame"])


def troubles(count: Counter[str]) -> list[str]:
    """What operators were told that nobody should be told."""
    known = {*TRANSIENT, "done", "result"}
    return [name for name in count if ": " in name and name.partition(": ")[2] not in known]
