"""One client: who it is, and its frames one after the other. Transport-free.

Above: the server, which hands in text frames in order and sends what gathers in the outbox. Below: the rules, which
say who serves what a known client asks for, and the desk where that is done.

    NEW ──authenticated──▶ OPEN ──authenticated──▶ OPEN       and from any: ──ended──▶ ENDED

Frames before ``hello`` are held, within bounds, unless a header said who it is; and so are those behind the first
``hello`` while the key that its token names is looked for. ``hello`` may come again: with a newer token for the same
person, which counts from then on, or with subscriptions to begin over; while that one's key is looked for, the client
is served as before. A client that leaves withdraws nothing.
"""

from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final

import structlog
from anyio.abc import TaskGroup

from torpor.clock import Clock
from torpor.errors import (
    BadFrame,
    ClientError,
    IllegalTransition,
    KeysUnavailable,
    StoreError,
    StoreUnavailable,
    TokenExpired,
    TooManyConnections,
    TooManyFrames,
    TooManySubscriptions,
    Unauthenticated,
)
from torpor.gateway.auth import Principal
from torpor.gateway.authenticator import Authenticator, UnknownKey
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.desk import Desk
from torpor.gateway.limits import Limits, Share
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox
from torpor.gateway.rules import serve
from torpor.gateway.subscription import Ports
from torpor.gateway.wire import decode, decode_binary, error_frame, unreadable_binary, unreadable_frame
from torpor.records.frames import AnyClientFrame, ErrorFrame, Hello, Subscribe, Welcome

_log = structlog.get_logger()


class State(Enum):
    NEW = auto()
    OPEN = auto()
    ENDED = auto()


class Signal(Enum):
    AUTHENTICATED = auto()
    ENDED = auto()


TRANSITIONS: Final = {
    (State.NEW, Signal.AUTHENTICATED): State.OPEN,
    (State.OPEN, Signal.AUTHENTICATED): State.OPEN,
    (State.NEW, Signal.ENDED): State.ENDED,
    (State.OPEN, Signal.ENDED): State.ENDED,
    (State.ENDED, Signal.ENDED): State.ENDED,
}


def next_state(state: State, signal: Signal) -> State:
    """Raises: IllegalTransition: the table does not list the pair."""
    try:
        return TRANSITIONS[state, signal]
    except KeyError:
        raise IllegalTransition(state, signal) from None


class Session:
    """See the module docstring. ``tasks`` belongs to whoever runs the connection and outlives the session."""

    refusal: str = ""
    """Why the client was not let in, if that is so."""

    def __init__(
        self,
        *,
        ports: Ports,
        authenticator: Authenticator,
        outbox: Outbox,
        tasks: TaskGroup,
        clock: Clock,
        options: GatewayOptions,
        limits: Limits,
        principal: Principal | None = None,
        is_local: bool = False,
    ) -> None:
        self._authenticator = authenticator
        self._is_local = is_local
        self._outbox = outbox
        self._tasks = tasks
        self._clock = clock
        self._options = options
        self._limits = limits
        self._message_attachments_max = ports.message_attachments_max
        self._share: Share | None = None
        """Of the person, once known."""
        self._frames = 0
        """Received before that."""
        self._desk = Desk(ports=ports, outbox=outbox, spawn=self._spawn, clock=clock, options=options)
        self._state = State.NEW
        self._began_s = self._heard_s = clock.monotonic_s()
        self._principal: Principal | None = None
        self._held: list[AnyClientFrame] = []
        self._held_bytes = 0
        self._is_identifying = False
        """Whether a ``hello`` waits for keys."""
        if principal is not None:
            try:
                self._let_in(principal)
            except TooManyConnections as exc:
                self._refuse(exc)

    @property
    def principal(self) -> Principal | None:
        """Who it is, once known."""
        return self._principal

    def receive(self, text: str) -> None:
        """Take the next frame; whatever is wrong with it is answered, and costs no other frame anything."""
        if self._outbox.closing is not None or self._state is State.ENDED:
            return
        try:
            frame = decode(text)
        except BadFrame as exc:
            self._turn_down(unreadable_frame(text, self._too_fast() or exc))
            return
        if (too_fast := self._too_fast()) is not None:
            self._turn_down(error_frame(too_fast, of=frame))
        else:
            self._handle(frame, size_bytes=len(text.encode(errors="surrogatepass")))

    def receive_binary(self, message: bytes) -> None:
        """Take a frame with bytes behind it, likewise."""
        if self._outbox.closing is not None or self._state is State.ENDED:
            return
        try:
            frame = decode_binary(message)
        except BadFrame as exc:
            self._turn_down(unreadable_binary(message, self._too_fast() or exc))
            return
        if (too_fast := self._too_fast()) is not None:
            self._turn_down(error_frame(too_fast, of=frame))
        else:
            self._handle(frame, size_bytes=len(message))

    def flooded(self) -> CloseReason:
        """Frames that never come here were too many: close at once, with the reason that is returned."""
        self._outbox.close(
            CloseReason.HELD_TOO_MUCH if self._share is None else CloseReason.TOO_MANY_FRAMES, flush=False
        )
        assert self._outbox.closing is not None
        return self._outbox.closing

    def check(self) -> None:
        """Close when ``hello`` is overdue, the token has expired, the client does not keep up, or nothing goes on; to
        be called now and then."""
        if self._principal is None:
            if self._clock.monotonic_s() - self._began_s >= self._options.hello_deadline_s:
                self._outbox.close(CloseReason.HELLO_OVERDUE)
        elif self._authenticator.is_expired(self._principal):
            self._outbox.close(CloseReason.TOKEN_EXPIRED)
        elif self._outbox.is_behind(for_s=self._options.slow_deadline_s):
            self._outbox.close(CloseReason.OVERFLOW, flush=False)
        elif not self._desk.is_busy and self._clock.monotonic_s() - self._heard_s >= self._options.idle_timeout_s:
            self._outbox.close(CloseReason.IDLE)

    def end(self) -> None:
        """The connection is gone: watch nothing any more. Ending twice is once."""
        self._state = next_state(self._state, Signal.ENDED)
        self._held.clear()
        self._desk.close()
        if self._share is not None:
            self._limits.leave(self._share)
            self._share = None

    def _handle(self, frame: AnyClientFrame, *, size_bytes: int = 0) -> None:
        try:
            if self._principal is not None and not isinstance(frame, Hello):
                serve(frame, at=self._desk, by=self._current(self._principal))
            elif self._is_identifying or not isinstance(frame, Hello):
                self._hold(frame, size_bytes=size_bytes)
            else:
                self._hello(frame)
        except ClientError as exc:
            self._refuse(exc, of=frame)
        except Exception:  # noqa: BLE001 - the edge of a client frame
            _log.exception("gateway.frame_failed", frame=type(frame).__name__)
            self._outbox.put(error_frame(None, of=frame))

    def _too_fast(self) -> TooManyFrames | None:
        """Count one more frame; the error when it is not served."""
        self._heard_s = self._clock.monotonic_s()
        if self._share is None:
            self._frames += 1
            if self._frames > self._options.held_frames_max:
                self._outbox.close(CloseReason.HELD_TOO_MUCH)
            return None
        try:
            self._limits.pay(self._share)
        except TooManyFrames as exc:
            return exc
        return None

    def _turn_down(self, answer: ErrorFrame) -> None:
        self._outbox.put(answer)
        if self._share is not None and self._share.is_spent:
            self._outbox.close(CloseReason.TOO_MANY_FRAMES)

    def _let_in(self, principal: Principal) -> None:
        """Raises: TooManyConnections."""
        if self._share is None:
            self._share = self._limits.enter(principal)
        self._state = next_state(self._state, Signal.AUTHENTICATED)
        self._principal = principal

    def _refuse(self, error: ClientError, *, of: AnyClientFrame | None = None) -> None:
        self._outbox.put(error_frame(error, of=of or Hello()))
        match error:
            case TooManyConnections():
                self._outbox.close(CloseReason.TOO_MANY_CONNECTIONS)
            case TokenExpired():
                self._outbox.close(CloseReason.TOKEN_EXPIRED)
            case Unauthenticated():
                self._outbox.close(CloseReason.UNAUTHENTICATED)
            case KeysUnavailable() if self._principal is None:
                self._outbox.close(CloseReason.KEYS_UNAVAILABLE)
        if self._outbox.closing is not None and self._principal is None:
            self.refusal = str(error)

    def _hello(self, frame: Hello) -> None:
        try:
            principal = self._identify(frame)
        except UnknownKey:
            self._is_identifying = True
            self._spawn(lambda: self._hello_later(frame), name="hello")
        else:
            self._welcome(frame, principal)

    async def _hello_later(self, frame: Hello) -> None:
        """With the keys that can be had."""
        try:
            principal = self._same(await self._authenticator.identify(frame.token, is_local=self._is_local))
            self._is_identifying = False
            if self._state is not State.ENDED and self._outbox.closing is None:
                self._welcome(frame, principal)
        except ClientError as exc:
            self._is_identifying = False
            self._refuse(exc, of=frame)
            self._take_held()

    def _welcome(self, frame: Hello, principal: Principal) -> None:
        self._let_in(principal)
        self._desk.restrict(principal)
        self._outbox.put(
            Welcome(
                principal=principal.subject,
                tenant=principal.tenant,
                owner=principal.owner,
                scopes=principal.scopes,
                expires_at_us=principal.expires_us or 0,
                frame_bytes_max=self._options.frame_bytes_max,
                message_attachments_max=self._message_attachments_max,
                ref=frame.ref,
            )
        )
        self._subscribe(frame)
        self._take_held()

    def _subscribe(self, frame: Hello) -> None:
        """To what ``hello`` names, as if each had come in a frame of its own; of one named twice to the last."""
        if len(frame.subscriptions) > (most := self._options.subscriptions_max):
            self._refuse(TooManySubscriptions(most), of=frame)
            return
        for watched in {watched.conversation: watched for watched in frame.subscriptions}.values():
            subscribe = Subscribe(ref=frame.ref, subscription=watched)
            if (too_fast := self._too_fast()) is not None:
                self._turn_down(error_frame(too_fast, of=subscribe))
            else:
                self._handle(subscribe)

    def _take_held(self) -> None:
        held, self._held, self._held_bytes = self._held, [], 0
        for earlier in held:
            if self._outbox.closing is None:
                self._handle(earlier)

    def _identify(self, frame: Hello) -> Principal:
        if frame.token:
            return self._same(self._authenticator.authenticate(frame.token, is_local=self._is_local))
        if self._principal is None:
            raise Unauthenticated("hello has no token, expected one there or in the Authorization header")
        return self._current(self._principal)

    def _same(self, principal: Principal) -> Principal:
        """``principal``. Raises: BadFrame: the connection is somebody else's."""
        if self._principal is not None and not principal.is_same_as(self._principal):
            raise BadFrame("hello names somebody else, expected the same person; open another connection")
        return principal

    def _current(self, principal: Principal) -> Principal:
        if self._authenticator.is_expired(principal):
            raise TokenExpired
        return principal

    def _hold(self, frame: AnyClientFrame, *, size_bytes: int) -> None:
        self._held.append(frame)
        self._held_bytes += size_bytes
        if len(self._held) > self._options.held_frames_max or self._held_bytes > self._options.held_bytes_max:
            self._outbox.close(CloseReason.HELD_TOO_MUCH)

    def _spawn(self, work: Callable[[], Awaitable[None]], *, name: str) -> None:
        self._tasks.start_soon(self._guarded, work, name=name)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except StoreError as exc:
            is_foreseen = isinstance(exc, StoreUnavailable)
            _log.warning("gateway.store_unreadable", why=str(exc), exc_info=None if is_foreseen else exc)
            self._outbox.close(CloseReason.UNAVAILABLE)
        except Exception:  # noqa: BLE001 - the edge of a client frame: what it set going
            _log.exception("gateway.session_failed")
            self._outbox.close(CloseReason.INTERNAL)

    def __repr__(self) -> str:
        return f"<Session {self._state.name} held={len(self._held)} {self._desk!r}>"
