"""A client of the gateway without a socket: frames go into a session, and come out of its outbox."""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskGroup

from tests.support.engine import Engine
from tests.support.gateway_world import WatchedServer, World
from tests.support.uploaded import no_uploads
from torpor.gateway.auth import Principal, mint
from torpor.gateway.authenticator import Authenticator, Trusted
from torpor.gateway.limits import Limits
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox
from torpor.gateway.session import Session
from torpor.gateway.subscription import Ports
from torpor.jobs.operated import OperatedJobs
from torpor.records.frames import AnyClientFrame, AnyServerFrame, ClientFrame

SECRET = b"a secret of thirty-two bytes, ok"
_FRAMES = msgspec.json.Decoder(AnyServerFrame)
Frame = TypeVar("Frame")


class ManualClock:
    """Moves when a test says so. Starts in the year 2026."""

    def __init__(self) -> None:
        self.us = 1_780_000_000_000_000

    def now_us(self) -> int:
        return self.us

    def monotonic_s(self) -> float:
        return self.us / 1_000_000

    def advance(self, seconds: float) -> None:
        self.us += round(seconds * 1_000_000)


def token_for(subject: str, *, clock: ManualClock, **more: Any) -> str:
    """A token for an hour."""
    return mint(SECRET, subject=subject, now_us=clock.now_us(), **{"lifetime_s": 3600.0, **more})


def ports_of(engine: Engine) -> Ports:
    """What a session talks to, over an engine of real parts."""
    jobs = OperatedJobs(engine.store.job_store, clock=engine.clock)
    return Ports(
        conversations=engine.supervisor,
        directory=engine.directory,
        forks=engine.forks,
        journals=engine.store,
        bundles=engine.blobs,
        bus=engine.bus,
        jobs=jobs,
        server=WatchedServer(engine.supervisor.turns),
        uploads=no_uploads(),
    )


class Line:
    """One session and the far end of its outbox."""

    def __init__(
        self,
        world: World | Ports,
        tasks: TaskGroup,
        *,
        clock: ManualClock | None = None,
        options: GatewayOptions | None = None,
        principal: Principal | None = None,
        limits: Limits | None = None,
        trusted: Trusted | None = None,
    ) -> None:
        self.clock = clock or ManualClock()
        self.options = options or GatewayOptions()
        self.outbox = Outbox(self.options)
        if isinstance(world, World):
            world = Ports(
                conversations=world,
                directory=world,
                forks=world,
                journals=world,
                bundles=world,
                bus=world.bus,
                jobs=world.jobs,
                server=world.server,
                uploads=no_uploads(),
            )
        self.session = Session(
            ports=world,
            authenticator=Authenticator(
                SECRET, clock=self.clock, leeway_s=self.options.token_leeway_s, trusted=trusted
            ),
            outbox=self.outbox,
            tasks=tasks,
            clock=self.clock,
            options=self.options,
            limits=limits or Limits(self.options, now_s=self.clock.monotonic_s),
            principal=principal,
            is_local=True,
        )

    def say(self, frame: AnyClientFrame | ClientFrame | str) -> None:
        self.session.receive(frame if isinstance(frame, str) else msgspec.json.encode(frame).decode())

    async def hear(self) -> AnyServerFrame | None:
        """The next frame; None when the connection is to be closed."""
        data = await self.hear_bytes()
        return None if data is None else _FRAMES.decode(data)

    async def hear_bytes(self) -> bytes | None:
        """The next frame as it is sent."""
        with anyio.fail_after(5):
            while (data := self.outbox.take()) is None and self.outbox.closing is None:
                await self._something()
        return data

    async def _something(self) -> None:
        """Return once something may have come, or has waited long enough."""
        told = anyio.Event()
        self.outbox.on_ready = told.set
        with anyio.move_on_after(self.outbox.pause_s()):
            await told.wait()

    async def hear_a(self, kind: type[Frame]) -> Frame:
        """The next frame, which must be of this kind."""
        frame = await self.hear()
        assert isinstance(frame, kind), f"expected {kind.__name__}, heard {frame!r}"
        return frame

    async def hear_until(self, is_last: Callable[[Any], bool]) -> list[Any]:
        """Frames up to and with the first for which ``is_last`` holds."""
        frames: list[Any] = []
        while not frames or not is_last(frames[-1]):
            frames.append(await self.hear())
            assert frames[-1] is not None, f"the connection closed after {frames!r}"
        return frames


def principal(subject: str = "alice", **more: Any) -> Principal:
    """Somebody with a token that does not end."""
    return Principal(
        **{
            "subject": subject,
            "tenant": "default",
            "owner": subject,
            "scopes": ("chat",),
            "expires_us": None,
            **more,
        }
    )
