"""``serving(script)``: the fake API on a port of this process, and the face that a test talks to.

    async with serving("Hello.", misbehave("overloaded"), profile="strict") as api:
        client = AsyncAnthropic(base_url=api.url, api_key="any", max_retries=0)

It runs on asyncio and on trio, in the task group of whoever opened it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.abc

from torpor_fake_api.connections import Connections
from torpor_fake_api.control import Control
from torpor_fake_api.host import Host
from torpor_fake_api.models import with_changes
from torpor_fake_api.profiles import PROFILES, Profile
from torpor_fake_api.received import Received
from torpor_fake_api.scripting.replies import Reply
from torpor_fake_api.scripting.script import Fallback, Script
from torpor_fake_api.wire.gates import Gates
from torpor_fake_api.wire.sockets import Listener

MESSAGES_PATH: Final = "/v1/messages"


class FakeApi:
    """A running host."""

    def __init__(self, host: Host, *, listener: Listener, control: Listener, group: anyio.abc.TaskGroup) -> None:
        self._host = host
        self._listener = listener
        self._control_listener = control
        self._group = group
        self._gates = Gates()
        self.control = Control(host, gates=self._gates, refuse=self.refuse_for)
        self._connections = Connections(host, control=self.control, gates=self._gates)

    def __repr__(self) -> str:
        return f"<FakeApi {self.url} requests={len(self.received)}>"

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"http://{self._listener.host}:{self._listener.port}"

    @property
    def control_url(self) -> str:
        """Where control answers even while the port is closed."""
        return f"http://{self._control_listener.host}:{self._control_listener.port}"

    @property
    def script(self) -> Script:
        return self._host.messages.script

    @property
    def received(self) -> list[Received]:
        """Every request, oldest first."""
        return list(self._host.received)

    @property
    def requests(self) -> list[Received]:
        """The requests for messages, refused ones too."""
        return [received for received in self._host.received if received.path == MESSAGES_PATH]

    @property
    def bodies(self) -> list[Any]:
        """Of the requests for messages."""
        return [received.body for received in self.requests]

    def say(self, *replies: Reply | str) -> None:
        """Put these in line."""
        self.script.say(*replies)

    def on(self, pattern: str, *replies: Reply | str) -> None:
        """Give these, one a request, to requests in whose last user text ``pattern`` is found."""
        self.script.on(pattern, *replies)

    def at(self, number: int, reply: Reply | str) -> None:
        """Give this to the n-th valid request for a message."""
        self.script.at(number, reply)

    def otherwise(self, fallback: Reply | Fallback) -> None:
        """Give this whenever nothing else is left."""
        self.script.otherwise(fallback)

    async def asked(self, number: int) -> Received:
        """Wait for the n-th request for a message, counted from 1, and return it."""
        while len(self.requests) < number:
            arrived = anyio.Event()
            self._host.arrived.append(arrived.set)
            try:
                await arrived.wait()
            finally:
                self._host.arrived.remove(arrived.set)
        return self.requests[number - 1]

    async def reached(self, name: str = "") -> None:
        """Wait until a response stands at the stall of this name."""
        await self._gates[name].reached.wait()

    def release(self, name: str = "") -> None:
        """Let the responses at this stall go on, and those that come later."""
        self._gates.open(name)

    def hold(self, name: str = "") -> None:
        """Make the stall of this name hold responses again."""
        self._gates.renew(name)

    def refuse(self) -> None:
        """Refuse connections from now on; those that are idle end."""
        self._listener.close()
        self._connections.are_refused = True
        self._connections.end_idle()

    def accept(self) -> None:
        """Take connections again, at the same port."""
        if not self._listener.is_open:
            self._connections.are_refused = False
            self._listener.open(self._group, self._connections.serve)

    def refuse_for(self, seconds: float) -> None:
        """Refuse connections for so long."""

        async def back() -> None:
            await anyio.sleep(seconds)
            self.accept()

        self.refuse()
        self._group.start_soon(back, name="fake_api.refuses")

    def start(self) -> None:
        """Listen. Raises: OSError: the port is taken."""
        self._control_listener.open(self._group, self._connections.serve_control)
        self.accept()

    def stop(self) -> None:
        """Close both ports."""
        self._control_listener.close()
        self._listener.close()


@asynccontextmanager
async def serving(
    *replies: Reply | str,
    script: Script | None = None,
    profile: str | Profile = "default",
    models: Mapping[str, Mapping[str, Any]] | None = None,
    api_key: str | None = None,
    seed: str = "",
    host: str = "127.0.0.1",
    port: int = 0,
) -> AsyncIterator[FakeApi]:
    """Serve on a port until the block is left, which ends every response.

    Args: replies: in line.  script: in place of an own one.  models: changes to the table, by id.  api_key: the only
        one accepted; None takes any.  seed: in every id; give two hosts of one conversation different ones.
    Raises: OSError: the port is taken.  KeyError: there is no such profile.
    """
    laid_out = script or Script()
    laid_out.say(*replies)
    facts = with_changes(models or {})
    read_as = profile if isinstance(profile, Profile) else PROFILES[profile]
    fake = Host(laid_out, profile=read_as, models=facts, api_key=api_key, seed=seed)
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        api = FakeApi(fake, listener=Listener(host, port), control=Listener(host, 0), group=group)
        try:
            api.start()
            yield api
        except Exception as exc:  # noqa: BLE001 - raised below, out of the group, so that a failed test shows itself
            failure = exc
        finally:
            api.stop()
            group.cancel_scope.cancel()
    if failure:
        raise failure
