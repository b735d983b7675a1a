"""A gateway that listens on a socket, over a ``World``, and clients without manners of their own."""

import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.support.gateway_line import SECRET, ManualClock, token_for
from tests.support.gateway_world import World
from tests.support.uploaded import no_uploads
from torpor.gateway.authenticator import Authenticator, Trusted
from torpor.gateway.options import GatewayOptions
from torpor.gateway.server import Gateway, open_gateway
from torpor.gateway.subscription import Ports
from torpor.gateway.uploads import Uploads
from torpor.records.frames import AnyServerFrame, ClientFrame, Cursor, Hello, Subscribe, Subscription

_FRAMES = msgspec.json.Decoder(AnyServerFrame)


class Caller:
    """A client that says what it is told to, and hears one frame after the other."""

    def __init__(self, connection: ClientConnection) -> None:
        self.socket = connection

    async def say(self, frame: ClientFrame | str | bytes) -> None:
        with anyio.fail_after(10):
            await self.socket.send(frame if isinstance(frame, str | bytes) else msgspec.json.encode(frame).decode())

    async def hear(self) -> AnyServerFrame:
        with anyio.fail_after(10):
            return _FRAMES.decode(await self.socket.recv())

    async def hear_a(self, kind: type[Any]) -> Any:
        frame = await self.hear()
        assert isinstance(frame, kind), f"expected {kind.__name__}, heard {frame!r}"
        return frame

    async def hear_until(self, is_last: Callable[[Any], bool]) -> list[Any]:
        frames: list[Any] = []
        while not frames or not is_last(frames[-1]):
            frames.append(await self.hear())
        return frames

    async def watch(self, conversation: str = "c1", cursor: int | None = None) -> None:
        known = None if cursor is None else Cursor(event=cursor)
        await self.say(Subscribe(subscription=Subscription(conversation=conversation, cursor=known)))

    def reset(self) -> None:
        """Be gone without a word, as after a crash of the system: whoever writes next is told so."""
        self.socket.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.socket.transport.abort()

    async def closed(self) -> tuple[int | None, str | None]:
        """Code and reason of the close frame, once it has come."""
        with anyio.fail_after(10):
            await self.socket.wait_closed()
        return self.socket.close_code, self.socket.close_reason


class House:
    """The gateway and what stands behind it."""

    def __init__(self, gateway: Gateway, world: World, clock: ManualClock) -> None:
        self.gateway = gateway
        self.world = world
        self.clock = clock

    @asynccontextmanager
    async def call(
        self, subject: str | None = "alice", *, buffer_bytes: int | None = None, **options: Any
    ) -> AsyncIterator[Caller]:
        """A connection that has said hello, or for None has not; with little room in the system for what it does not
        read."""
        async with connect(
            self.gateway.url,
            sock=self._line(buffer_bytes),
            proxy=None,
            **{"subprotocols": [Subprotocol("torpor.v1")], "compression": None, "max_size": None, **options},
        ) as connection:
            caller = Caller(connection)
            if subject is not None:
                await caller.say(Hello(token=token_for(subject, clock=self.clock)))
                await caller.hear()
            yield caller

    def _line(self, buffer_bytes: int | None) -> socket.socket:
        line = socket.socket()
        try:
            if buffer_bytes is not None:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            line.connect(("127.0.0.1", self.gateway.port))
        except OSError:
            line.close()
            raise
        return line

    async def empty(self) -> None:
        """Return once the gateway has no connection left."""
        with anyio.fail_after(10):
            while self.gateway.statistics().connections:  # noqa: ASYNC110 - the gateway has no event for it
                await anyio.sleep(0.005)


@asynccontextmanager
async def gateway_house(
    *,
    trusted: Trusted | None = None,
    tls: ssl.SSLContext | None = None,
    uploads: Uploads | None = None,
    **options: Any,
) -> AsyncIterator[House]:
    """A house for the length of a block, on a port that the system chose."""
    clock, world = ManualClock(), World()
    everything = GatewayOptions(**{"port": 0, "close_deadline_s": 0.5, **options})
    async with open_gateway(
        ports=Ports(
            conversations=world,
            directory=world,
            forks=world,
            journals=world,
            bundles=world,
            bus=world.bus,
            jobs=world.jobs,
            server=world.server,
            uploads=uploads or no_uploads(),
        ),
        authenticator=Authenticator(SECRET, clock=clock, leeway_s=everything.token_leeway_s, trusted=trusted),
        clock=clock,
        options=everything,
        tls=tls,
    ) as gateway:
        yield House(gateway, world, clock)
