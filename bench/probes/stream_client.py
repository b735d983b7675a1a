"""A client of the server in another process: ``python -m bench.probes.stream_client URL TOKEN CONVERSATIONS``.

For each line it reads, a turn in every conversation, all at once; then it prints what it heard of them. Plain lines,
since a slow client would make the server wait.
"""

import sys
from typing import Final

import anyio
import anyio.to_thread
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from torpor.records.frames import SUBPROTOCOL

_TURN_S: Final = 60.0


class Heard(msgspec.Struct):
    """Of one round of turns."""

    deltas: int = 0
    """Frames."""
    chars: int = 0
    replies: int = 0


async def main(url: str, token: str, conversations: int) -> None:
    names = [f"c{number}" for number in range(conversations)]
    async with connect(url, subprotocols=[Subprotocol(SUBPROTOCOL)], compression=None) as socket:
        await _say(socket, frame="hello", token=token, subscriptions=[{"conversation": name} for name in names])
        turn = 0
        while await anyio.to_thread.run_sync(sys.stdin.readline):
            turn += 1
            for name in names:
                await _say(socket, frame="send", conversation=name, message_id=f"m_{turn}", text="go on")
            with anyio.fail_after(_TURN_S):
                heard = await _hear(socket, turns=conversations)
            print(msgspec.json.encode(heard).decode(), flush=True)


async def _hear(socket: ClientConnection, *, turns: int) -> Heard:
    heard = Heard()
    while turns:
        match msgspec.json.decode(await socket.recv()):
            case {"frame": "delta", "text": text}:
                heard.deltas += 1
                heard.chars += len(text)
            case {"event": {"type": "reply.finished"}}:
                heard.replies += 1
            case {"event": {"type": "turn.finished"}}:
                turns -= 1
            case ({"frame": "error"} | {"event": {"type": "turn.failed"}}) as frame:
                raise RuntimeError(f"the server said {frame}")
    return heard


async def _say(socket: ClientConnection, **frame: object) -> None:
    await socket.send(msgspec.json.encode(frame), text=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], int(sys.argv[3]))
