"""All connections of a process: one to each server that is shared, and one for each user to those that are not.

Above: the composition root, which runs them; ``elsewhere``, which makes tools of what they offer. Nothing is started
before somebody needs it. Of connections that are one user's, the one that was not used for longest makes room for
another one's.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import anyio.abc
import msgspec
import structlog

from torpor.toolhost.mcp.connection import Connection, Standing
from torpor.toolhost.mcp.listing import NOBODY, Listing
from torpor.toolhost.mcp.options import McpOptions, McpServer, Servers
from torpor.toolhost.mcp.session import Open, Opening
from torpor.toolhost.mcp.states import ServerState
from torpor.toolhost.mcp.values import NO_CREDENTIAL, Values
from torpor.toolhost.process import NotStarted

NOTHING_ASKED: Final[Mapping[str, Mapping[str, str]]] = {}
_PAGES_MAX = 50
_LACKING_MAX: Final = 1_000
"""Users without a credential that are told of; who was told of for longest goes first."""
_log = structlog.get_logger()


def off_for_nobody(key: str) -> str:
    """Where there are no flags."""
    return ""


class Link(NamedTuple):
    """Names a connection."""

    server: str
    tenant: str = ""
    """Empty, as is the other, where everybody shares it."""
    principal: str = ""


class McpStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How all of them stand."""

    connections: Mapping[ServerState, int]
    up: Mapping[str, int]
    """Connections by server, as are the others; servers that nobody needed yet included."""
    tools: Mapping[str, int]
    rejected: Mapping[str, int]
    lost: Mapping[str, int]
    calls: int


class McpServers:
    """See the module docstring; ``async with servers.running()``."""

    def __init__(
        self,
        servers: Servers,
        *,
        home: Path,
        values: Values,
        open_: Open,
        options: McpOptions,
        chance: Callable[[], float],
        shows_errors: bool = False,
        asked: Mapping[str, Mapping[str, str]] = NOTHING_ASKED,
        off: Callable[[str], str] = off_for_nobody,
    ) -> None:
        """Args: asked: by server, as ``read_listing`` has it.  off: for whom a flag is off, in words, by its key."""
        self.servers = servers
        self.options = options
        self._home = home
        self._values = values
        self._open = open_
        self._chance = chance
        self._shows_errors = shows_errors
        self._asked = asked
        self._off = off
        self._lacking: dict[Link, None] = {}
        """Those that somebody needed, and for which there is no credential."""
        self._connections: dict[Link, tuple[Connection, anyio.CancelScope]] = {}
        self._tasks: anyio.abc.TaskGroup | None = None
        self._freed = anyio.Event()
        """Set, and replaced, when there may be room, while somebody waits for it."""
        self._wait_for_room = 0
        self._lost = Counter[str]()
        """Of connections that made room."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """In the end all connections are closed at the same time; no process is left."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                self._tasks = None
                tasks.cancel_scope.cancel()

    def links(self, names: Iterable[str], *, tenant: str, principal: str) -> tuple[Link, ...]:
        """Those through which this user has the tools of these servers; of a server to which they have no credential
        there is none."""
        links = list[Link]()
        for name in sorted(set(names) & self.servers.keys()):
            server = self.servers[name]
            if not server.is_users_own:
                links.append(Link(name))
            elif self._values.has_credential(server, tenant=tenant, principal=principal):
                links.append(link := Link(name, tenant, principal))
                self._lacking.pop(link, None)
            elif principal:
                self._lacks(Link(name, tenant, principal))
        return tuple(links)

    def gate(self, name: str) -> str:
        """Key of the flag that switches the server of that name."""
        return self.servers[name].flag or f"mcp.{name}"

    def off(self, name: str) -> str:
        """For whom the flag of the server of that name is off, in words."""
        return self._off(self.gate(name))

    def connection(self, link: Link) -> Connection:
        """The one that ``link`` names, made when there is none. Raises: NotStarted: there is no room for one more."""
        if link in self._connections:
            return self._connections[link][0]
        if self._tasks is None:
            raise NotStarted("the server is about to stop; nothing was done")
        if len(self._connections) >= self.options.connections_max:
            self._make_room()
        connection = Connection(
            link.server,
            server=self.servers[link.server],
            opening=lambda owner: self._opening(link, owner),
            open_=self._open,
            options=self.options,
            chance=self._chance,
            asked=self._asked.get(link.server, NOBODY),
            freed=self._may_have_room,
        )
        scope = anyio.CancelScope()
        self._connections[link] = (connection, scope)
        self._tasks.start_soon(self._own, connection, scope, name=f"mcp:{link.server}")
        return connection

    async def reached(self, link: Link, *, wait_s: float) -> Connection:
        """As ``connection``, once there is room. Args: wait_s: the longest that it is waited for."""
        self._wait_for_room += 1
        try:
            with anyio.move_on_after(wait_s):
                while self._tasks is not None and not self.has_room(link):
                    await self._freed.wait()
        finally:
            self._wait_for_room -= 1
        return self.connection(link)

    def has_room(self, link: Link) -> bool:
        """Whether ``connection`` has one, or can make one."""
        is_full = link not in self._connections and len(self._connections) >= self.options.connections_max
        return not is_full or not all(each.is_needed for each, _ in self._connections.values())

    def _may_have_room(self) -> None:
        if self._wait_for_room:
            self._freed.set()
            self._freed = anyio.Event()

    def listings(self, links: Iterable[Link]) -> tuple[tuple[Link, Listing], ...]:
        """What is known of each; nothing of those that were not needed yet."""
        return tuple((link, self._connections[link][0].tools) for link in links if link in self._connections)

    def standings(self) -> tuple[Standing, ...]:
        """Of each connection, of each server that has none, and of each user without a credential, by name."""
        told = [
            msgspec.structs.replace(each.standing(), tenant=link.tenant, principal=link.principal)
            for link, (each, _) in self._connections.items()
        ]
        told += [
            Standing(server=name, state=ServerState.IDLE, lost=self._lost[name])
            for name in self.servers.keys() - {link.server for link in self._connections}
        ]
        told += [
            Standing(server=name, state=ServerState.IDLE, tenant=tenant, principal=principal, why=NO_CREDENTIAL)
            for name, tenant, principal in self._lacking.keys() - self._connections.keys()
        ]
        told = [msgspec.structs.replace(each, off=self.off(each.server)) for each in told]
        return tuple(sorted(told, key=lambda each: (each.server, each.tenant, each.principal)))

    def statistics(self) -> McpStatistics:
        connections = [each for each, _ in self._connections.values()]

        def by_server(count: Callable[[Connection], int]) -> dict[str, int]:
            counted = dict.fromkeys(self.servers, 0)
            for each in connections:
                counted[each.name] += count(each)
            return counted

        return McpStatistics(
            connections={state: sum(each.state is state for each in connections) for state in ServerState},
            up=by_server(lambda each: each.state is ServerState.UP),
            tools=by_server(lambda each: len(each.tools.tools)),
            rejected=by_server(lambda each: len(each.tools.rejected)),
            lost={name: self._lost[name] + count for name, count in by_server(lambda each: each.lost).items()},
            calls=sum(each.calls for each in connections),
        )

    def _lacks(self, link: Link) -> None:
        """Told once, until there is a credential."""
        if link not in self._lacking:
            if len(self._lacking) >= _LACKING_MAX:
                self._lacking.pop(next(iter(self._lacking)))
            self._lacking[link] = None
            _log.info("mcp.no_credential", server=link.server, tenant=link.tenant, principal=link.principal)

    async def _own(self, connection: Connection, scope: anyio.CancelScope) -> None:
        with scope:
            await connection.run()

    def _make_room(self) -> None:
        """Also shared ones may go, where all are: their next call makes them anew."""
        free = [(each.used_s, link) for link, (each, _) in self._connections.items() if not each.is_needed]
        own = [(used_s, link) for used_s, link in free if link.principal]
        if not free:
            raise NotStarted("too many servers are connected at once; nothing was done, try again later")
        _, link = min(own or free)
        gone, scope = self._connections.pop(link)
        self._lost[link.server] += gone.lost
        scope.cancel()

    def _opening(self, link: Link, owner: Connection) -> Opening:
        server: McpServer = self.servers[link.server]

        def values(part: str) -> dict[str, str]:
            return self._values.of(link.server, server, part, tenant=link.tenant, principal=link.principal)

        return Opening(
            server=server,
            cwd=str(self._home),
            env=values("env"),
            headers=values("headers"),
            changed=owner.changed,
            ended=owner.ended,
            stale=owner.stale,
            printed=owner.printed,
            message_bytes_max=self.options.message_bytes_max,
            pages_max=_PAGES_MAX,
            shows_errors=self._shows_errors,
        )

    def __repr__(self) -> str:
        return f"<McpServers servers={len(self.servers)} connections={len(self._connections)}>"
