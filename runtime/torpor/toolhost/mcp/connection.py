"""One server for everybody, or for one user: a task of its own owns the connection, and calls come from elsewhere.

Above: ``servers``, which starts ``run`` in a task and hands calls in. Below: ``session``. Whatever the server does ends
here: a call has its deadline from its caller, and is ended by the owner when the connection is. The tools are those of
the last list that was heard, also while the server is stopped for want of work; they are gone once it cannot be
reached.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
import structlog

from torpor.errors import ToolError
from torpor.toolhost.contract import AT_ONCE, Onset
from torpor.toolhost.mcp.endings import cancellation_in, why_of
from torpor.toolhost.mcp.listing import NOBODY, NOTHING, Listing, read_listing, tokens_of
from torpor.toolhost.mcp.options import McpOptions, McpServer
from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.mcp.session import ConnectionLost, NotSent, Open, Opening, ServerError, Session
from torpor.toolhost.mcp.states import ServerSignal, ServerState, next_state, pause_s
from torpor.toolhost.process import NotStarted

_INVALID_PARAMS: Final = -32_602
_log = structlog.get_logger()


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How one connection stands."""

    server: str
    state: ServerState
    tenant: str = ""
    """Of one user's own; empty, as is the other, where everybody shares it."""
    principal: str = ""
    generation: int = 0
    """How often it was up."""
    lost: int = 0
    """How often it was lost, or did not start."""
    failures: int = 0
    """In a row."""
    tools: int = 0
    rejected: int = 0
    tokens: int = 0
    """That its tools cost in a request, about."""
    calls: int = 0
    """Under way."""
    why: str = ""
    """Of the last failure; empty while there is none."""
    printed: str = ""
    """The last lines that its program wrote where it ended by itself before it was up; empty as ``why`` is."""
    off: str = ""
    """For whom its flag switches it off, in words; empty where for nobody."""


class Connection:
    """See the module docstring."""

    def __init__(
        self,
        name: str,
        *,
        server: McpServer,
        opening: Callable[["Connection"], Opening],
        open_: Open,
        options: McpOptions,
        chance: Callable[[], float],
        asked: Mapping[str, str] = NOBODY,
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        """
        Args:
            asked: as ``read_listing`` has it.
            freed: to be called when it is needed no more, or perhaps.
            opening: what a connection is made of now; takes time. Raises: ConfigError. NoCredential.
            chance: from 0 up to 1, drawn anew each time.
        """
        self.name = name
        self.listing: Listing = NOTHING
        self.generation = 0
        self.state = ServerState.IDLE
        self._server = server
        self._opening = opening
        self._open = open_
        self._options = options
        self._chance = chance
        self._asked = asked
        self._freed = freed
        self._session: Session | None = None
        self._calls: set[anyio.CancelScope] = set()
        self._waiting = 0
        """Who waits for it to be up, or known."""
        self._failures = 0
        self.lost = 0
        """Times that it was lost, or did not start."""
        self._why = ""
        self._printed = ""
        self._last_words = ""
        """What its program has written last, where it has ended."""
        self._news = anyio.Event()
        """Set, and replaced, whenever something changes."""
        self._is_known = False
        self._is_wanted = False
        self._has_changed = False
        self._lost_why = self._stale_why = ""
        self._start: anyio.CancelScope | None = None
        """Of what is being started."""
        self.used_s = -math.inf
        """When it was last called, or wanted; of the event loop's clock."""

    @property
    def calls(self) -> int:
        """Under way."""
        return len(self._calls)

    @property
    def is_needed(self) -> bool:
        """Whether somebody is served by it, or waits for it."""
        return bool(self._calls or self._waiting) or self.state is ServerState.STARTING

    @property
    def is_known(self) -> bool:
        """Whether it is decided what it offers now: its list was heard, or it could not be reached. Of one that was
        given up since nobody needed it, nothing is known any more."""
        return self._is_known

    @property
    def tools(self) -> Listing:
        """What it offers now. Who was just lost is expected back; who does not come back offers nothing."""
        return self.listing if self._failures <= 1 else NOTHING

    def want(self) -> None:
        """Have it started, if it is not."""
        self.used_s = anyio.current_time()
        if self.state is ServerState.IDLE and not self._is_wanted:
            self._is_wanted = True
            self._tell()

    async def known(self) -> None:
        """Wait until ``is_known``; the caller sets a bound."""
        self._waiting += 1
        try:
            self.want()
            while not self.is_known:
                await self.next_news()
                self.want()
        finally:
            self._waiting -= 1
            self._freed()

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        wait_s: float,
        report: Callable[[str], None],
        onset: Onset = AT_ONCE,
    ) -> Answer:
        """Call ``tool``, which the server calls so.

        Args:
            wait_s: the longest that a server which is not up is waited for, also where that is noticed by this call.
            onset: asked each time right before something is sent.
        Cancellation: the server is told, within a bound.
        Raises: NotStarted: the server cannot be reached, nothing was sent. ConnectionLost: sent, and no answer came.
            ServerError. ToolRefused.
        """
        until_s = anyio.current_time() + wait_s
        while True:
            session = await self._up(until_s - anyio.current_time())
            onset.begin()
            try:
                return await self._called(session, tool, arguments, report=report)
            except NotSent as exc:
                self.stale(exc.why)
            onset.wait()

    async def _called(
        self, session: Session, tool: str, arguments: Mapping[str, Any], *, report: Callable[[str], None]
    ) -> Answer:
        answer: Answer | None = None
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            try:
                answer = await session.call(tool, arguments, report=report)
            except ServerError as exc:
                if exc.number == _INVALID_PARAMS:
                    self.changed()
                raise
            finally:
                self._calls.discard(scope)
                self.used_s = anyio.current_time()
                if self._stale_why:
                    self._tell()
                self._freed()
        if answer is None:
            why = f": {self._lost_why}" if self._lost_why else ""
            raise ConnectionLost(f"the connection to {self.name} ended{why}")
        self._look_again(answer)
        return answer

    async def next_news(self) -> None:
        """Wait until something changes."""
        await self._news.wait()

    async def run(self) -> None:
        """Own the connection until cancelled; never raises for what a server does."""
        while True:
            while not self._is_wanted:
                await self.next_news()
            self._enter(ServerSignal.WANTED)
            while self.state is not ServerState.IDLE:
                if self.state is ServerState.RESTING:
                    await anyio.sleep(pause_s(self._failures, options=self._options, chance=self._chance()))
                    is_over = self._idle_at_s() <= anyio.current_time()
                    self._is_known = not is_over
                    self._enter(ServerSignal.STOPPED if is_over else ServerSignal.RESTED)
                else:
                    await self._live()

    def standing(self) -> Standing:
        return Standing(
            server=self.name,
            state=self.state,
            generation=self.generation,
            lost=self.lost,
            failures=self._failures,
            tools=len(self.tools.tools),
            rejected=len(self.tools.rejected),
            tokens=sum(map(tokens_of, self.tools.tools)),
            calls=len(self._calls),
            why=self._why,
            printed=self._printed,
        )

    def changed(self) -> None:
        """The server tells of other tools."""
        self._has_changed = True
        self._tell()

    def ended(self, why: str) -> None:
        """Nothing more comes from the server."""
        self._lost_why = self._lost_why or why
        if self._start is not None:
            self._start.cancel()  # nobody else looks at what comes before it is up
        self._tell()

    def stale(self, why: str) -> None:
        """It is to be made anew, once the calls under way are over; later ones wait for the next."""
        self._stale_why = self._stale_why or why
        self._session = None
        self._tell()

    def printed(self, lines: str) -> None:
        """Its program ended by itself, and wrote this last."""
        self._last_words = lines

    async def _up(self, wait_s: float) -> Session:
        """The session, once there is one; whoever waits for it has sent nothing."""
        self._waiting += 1
        try:
            with anyio.move_on_after(wait_s):
                while not self._has_failed_again:
                    self.want()
                    if self._session is not None and not self._lost_why:
                        return self._session
                    await self.next_news()
        finally:
            self._waiting -= 1
            self._freed()
        why = f" ({self._why})" if self._why else ""
        raise NotStarted(f"the server {self.name} cannot be reached now{why}; nothing was done, try again later")

    @property
    def _has_failed_again(self) -> bool:
        """A server that was just lost is worth waiting for, one that does not come back is not."""
        return self.state is ServerState.RESTING and self._failures > 1

    async def _live(self) -> None:
        """From starting to the end of one connection; the state is resting or idle then."""
        scope = anyio.CancelScope(deadline=anyio.current_time() + self._options.start_deadline_s)
        why = ""
        self._start = scope
        try:
            with scope:
                why = await self._connected(scope)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseExceptionGroup as group:  # the edge to a foreign process, and to the library that speaks to it
            if anyio.current_effective_deadline() == -math.inf:
                raise cancellation_in(group) from None
            why = self._lost_why or why_of(group)
        except Exception as exc:  # noqa: BLE001 - likewise
            why = self._lost_why or why_of(exc)
        finally:
            self._session = self._start = None
            for call in self._calls:
                call.cancel()
        if scope.cancelled_caught and not why:
            started = self.state is ServerState.UP  # then it was slow to close
            slow = "" if started else f"it was not ready within {self._options.start_deadline_s:g} s"
            why = self._lost_why or slow
        self._over(why)

    async def _connected(self, scope: anyio.CancelScope) -> str:
        """Why it is over; empty when nobody needs it any longer."""
        self._lost_why, self._stale_why, self._last_words = "", "", ""
        self._has_changed, self._is_wanted = False, False
        async with self._open(self._opening(self)) as session:
            self.listing = await self._read(await session.tools())
            scope.deadline, self._start = math.inf, None
            self.generation += 1
            self._is_known = True
            self._failures, self._why, self._printed, self._session = 0, "", "", session
            self.used_s = anyio.current_time()
            self._enter(ServerSignal.LISTED)
            _log.info("mcp.connected", server=self.name, tools=len(self.listing.tools), generation=self.generation)
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(session.heed_changes, name=f"mcp:{self.name}:changes")
                    await self._serve(session)
                    tasks.cancel_scope.cancel()
            finally:
                self._session = None
                for call in self._calls:
                    call.cancel()
                scope.deadline = anyio.current_time() + self._options.close_deadline_s
        return self._lost_why

    async def _serve(self, session: Session) -> None:
        """Until it is lost, or nobody has needed it for a while."""
        listed_s = anyio.current_time()
        while not self._lost_why:
            if self._stale_why and not self._calls:
                self.ended(self._stale_why)
                return
            until_s = self._idle_at_s()
            if until_s <= anyio.current_time():
                self._session = None  # whoever calls from now on waits for the next one
                _log.info("mcp.stopped_idle", server=self.name)
                return
            if self._has_changed:
                again_s = listed_s + self._options.relist_pause_s
                if again_s <= anyio.current_time():
                    await self._list_again(session)
                    listed_s = anyio.current_time()
                    continue
                until_s = min(until_s, again_s)
            with anyio.move_on_at(until_s):
                await self.next_news()

    async def _list_again(self, session: Session) -> None:
        """What it offers now; what it offered before where it does not say."""
        self._has_changed = False
        told: tuple[object, ...] | None = None
        try:
            with anyio.move_on_after(self._options.list_deadline_s):
                told = await session.tools()
        except ToolError as exc:
            _log.warning("mcp.not_listed", server=self.name, why=why_of(exc))
            if isinstance(exc, NotSent):
                self.stale(exc.why)
            return
        if told is None:
            self.ended(f"it did not tell its tools within {self._options.list_deadline_s:g} s")
            return
        before, self.listing = self.listing, await self._read(told)
        if before.digest != self.listing.digest:
            _log.info("mcp.listed", server=self.name, tools=len(self.listing.tools))
            self._tell()

    async def _read(self, told: tuple[object, ...]) -> Listing:
        reading = partial(read_listing, self.name, self._server, told, options=self._options, asked=self._asked)
        listing = await anyio.to_thread.run_sync(reading, abandon_on_cancel=True)
        for rejected in listing.rejected if listing.rejected != self.listing.rejected else ():
            _log.warning("mcp.tool_left_out", server=self.name, tool=rejected.title, why=rejected.why)
        for unmet in listing.unmet if listing.unmet != self.listing.unmet else ():
            has = listing.told_titles
            _log.warning("mcp.tool_unknown", server=self.name, tool=unmet.title, why=unmet.why, has=has)
        return listing

    def _look_again(self, answer: Answer) -> None:
        """A tool that the server does not know is one that it has no longer."""
        if answer.is_error and any("unknown tool" in str(block.get("text", "")).lower() for block in answer.content):
            self.changed()

    def _idle_at_s(self) -> float:
        idle_s = self._options.idle_stop_s if self._server.idle_stop_s is None else self._server.idle_stop_s
        if not idle_s:
            return math.inf
        # Nobody tells of the end of a call, which would wake the owner at each: it looks again after as long a while.
        is_needed = self._calls or self._waiting
        return (anyio.current_time() if is_needed else self.used_s) + idle_s

    def _over(self, why: str) -> None:
        """One life has ended. Args: why: empty when nobody needed it."""
        if not why:
            self._enter(ServerSignal.STOPPED)
            return
        self._is_known = True
        self._failures += 1
        self.lost += 1
        was_up = self.state is ServerState.UP
        # What a program writes that was called may hold what was sent to it.
        self._why, self._printed = why, "" if was_up else self._last_words
        event, more = "mcp.lost" if was_up else "mcp.not_started", {"printed": self._printed} if self._printed else {}
        _log.warning(event, server=self.name, why=why, failures=self._failures, **more)
        self._enter(ServerSignal.LOST if was_up else ServerSignal.FAILED)

    def _enter(self, signal: ServerSignal) -> None:
        self.state = next_state(self.state, signal)
        self._tell()
        self._freed()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    def __repr__(self) -> str:
        return f"<Connection {self.name} {self.state} generation={self.generation} calls={len(self._calls)}>"
