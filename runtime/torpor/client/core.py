"""The client's side of the protocol, without a socket: what was asked and not answered, and what is watched.

Above: ``TorporClient``, which moves text between this and a socket. Nothing here waits. Connections come and go:
``connected`` says what to tell a new one, which is everything that an old one did not answer.

A message is told again under its own id until it is answered, so it is one message however often that happens. What
may be repeated without harm is repeated likewise; a cancel is not, since it could meet another turn, nor a drain, since
it could meet the next server.

The server closes a connection on which a frame is too long, and would close the next one likewise: ``welcome`` says how
long a frame may be, a longer request is refused here, and a long one waits for that word.
"""

from collections import deque
from typing import Final, Protocol

import msgspec

from torpor.client.bearer import Bearer
from torpor.client.failures import ConnectionLost, RequestRefused
from torpor.client.follow import Follow, Sink
from torpor.client.wire import IncomingEvent, IncomingReload, decode, encode
from torpor.errors import TokenExpired, TooLong, TooManyFrames, TooManySubscriptions, Unauthenticated
from torpor.records.frames import (
    Accepted,
    BeginUpload,
    Cancel,
    ClientFrame,
    Cursor,
    DeltaFrame,
    Done,
    DrainServer,
    ErrorFrame,
    Hello,
    Piece,
    ProgressFrame,
    Result,
    Resumed,
    Send,
    StatusFrame,
    Subscribe,
    Unsubscribe,
    UploadPiece,
    Welcome,
)

Answer = Accepted | Done | Result | Piece

_LONG_BYTES: Final = 16_384
"""A frame beyond it is not said before ``welcome``."""
_UPLOAD_WAIT_MAX_S: Final = 60.0
"""How long room for a file is waited for, in all; whoever sends it decides about more."""
_FRAME_BYTES_MAX: Final = 1_048_576
"""What a server that does not say it takes unless it is told otherwise."""


class Asker(Protocol):
    """Whoever waits for the answer to a request."""

    def settle(self, answer: Answer | Exception) -> None: ...


class ResendLater(msgspec.Struct, frozen=True, kw_only=True):
    """The server had no room for a request, or for a subscription; it wants to be asked again."""

    ref: str = ""
    conversation: str = ""
    """Of a subscription."""
    after_s: float
    why: str = ""
    """In the server's words."""


class _Pending:
    """A request without an answer."""

    __slots__ = ("asker", "frame", "put_off_s", "told")

    def __init__(self, frame: ClientFrame, asker: Asker) -> None:
        self.frame = frame
        self.asker = asker
        self.told = False
        """Whether a connection has been given it to send."""
        self.put_off_s = 0.0
        """As the server asked, since it had no room."""

    def may_wait(self, seconds: float) -> bool:
        """Whether it is sent again after that; counts it as waited."""
        self.put_off_s += seconds
        return self.put_off_s <= _UPLOAD_WAIT_MAX_S or not isinstance(self.frame, BeginUpload | UploadPiece)


class ClientCore:
    """See the module docstring. ``outgoing`` holds what the connection is to send next, in order."""

    def __init__(self, token: str) -> None:
        self.outgoing: deque[str | bytes] = deque()
        self.welcome: Welcome | None = None
        """Of the connection that is open; None without one."""
        self.unreadable = 0
        """Frames that this client does not know."""
        self._bearer = Bearer(token)
        self._frame_bytes_max = 0
        """As the last ``welcome`` said; 0 before the first."""
        self._is_held = False
        """Whether requests wait for ``welcome``."""
        self._is_connected = False
        self._pending: dict[str, _Pending] = {}
        self._follows: dict[str, Follow] = {}

    # What the user of the client does.

    def renew(self, token: str) -> None:
        """Go on as the same person with a newer token, told to the connection that is open, if one is.

        Raises: OtherPerson: it is somebody else's, and not used.
        """
        self._bearer.renew(token)
        self._put_renewal()

    def ask(self, frame: ClientFrame, asker: Asker) -> None:
        """Send a request with a ``ref`` of its own, now or with the next connection, and settle ``asker`` once; at once
        where the server would not take so long a frame."""
        pending = self._pending[frame.ref] = _Pending(frame, asker)
        self._tell(pending)

    def withdraw(self, ref: str) -> None:
        """Nobody waits for this answer any more; what was sent is not called back."""
        self._pending.pop(ref, None)

    def resend(self, later: ResendLater) -> None:
        """Say it once more, unless it has been answered or nobody wants it any more."""
        if self._bearer.is_renewing(later.ref):
            self._put_renewal()
        elif (pending := self._pending.get(later.ref)) is not None:
            self._tell(pending)
        elif (follow := self._follows.get(later.conversation)) is not None:
            self._subscribe(follow)

    def watch(self, conversation: str, *, cursor: Cursor | None, sink: Sink) -> None:
        """Follow a conversation, once; its items go to ``sink``."""
        follow = self._follows[conversation] = Follow(conversation, cursor=cursor, sink=sink)
        self._subscribe(follow)

    def is_watched(self, conversation: str) -> bool:
        return conversation in self._follows

    def unwatch(self, conversation: str, *, sink: Sink) -> None:
        """Nothing goes to ``sink`` any more."""
        follow = self._follows.get(conversation)
        if follow is not None and follow.sink is sink:
            del self._follows[conversation]
            self._put(Unsubscribe(conversation=conversation))

    def drained(self, conversation: str) -> None:
        """The sink has room again: ask for what it had none for."""
        follow = self._follows.get(conversation)
        if follow is not None and follow.is_behind:
            self._subscribe(follow)

    def give_up(self, error: Exception) -> None:
        """Nothing will be answered any more: everybody who waits or watches is told why."""
        for pending in self._pending.values():
            pending.asker.settle(error)
        self._pending.clear()
        for follow in self._follows.values():
            follow.sink.fail(error)
        self._follows.clear()

    # What happens to the connection.

    def connected(self) -> None:
        """A connection is open; ``outgoing`` begins with ``hello`` and what the last one left unanswered."""
        self._is_connected = True
        self.outgoing.clear()
        subscriptions = tuple(follow.ask() for follow in self._follows.values() if not follow.is_behind)
        self._is_held = self._bearer.is_doubtful
        self._put(Hello(token=self._bearer.connected(), subscriptions=subscriptions))
        for pending in tuple(self._pending.values()):
            pending.told = False
            self._tell(pending)

    def disconnected(self) -> None:
        """The connection is gone."""
        self._is_connected = False
        self.welcome = None
        self.outgoing.clear()
        for ref, pending in tuple(self._pending.items()):
            if isinstance(pending.frame, Cancel | DrainServer) and pending.told:
                del self._pending[ref]
                pending.asker.settle(ConnectionLost(str(type(pending.frame).__struct_config__.tag)))

    def received(self, text: str | bytes) -> ResendLater | None:
        """Take a frame of the server. Raises: Unauthenticated: it does not know the token, and never will.
        TokenExpired: it did. ServerRefused: it takes us for somebody else than before."""
        frame = decode(text)
        match frame:
            case None:
                self.unreadable += 1
            case Welcome():
                self._on_welcome(frame)
            case Accepted() | Done() | Result() | Piece():
                self._settle(frame.ref, frame)
            case ErrorFrame():
                return self._on_error(frame)
            case _:
                self._on_watched(frame)
        return None

    def _on_welcome(self, frame: Welcome) -> None:
        self._bearer.welcomed(frame)
        self.welcome = frame
        self._frame_bytes_max = frame.frame_bytes_max or _FRAME_BYTES_MAX
        self._is_held = False
        for pending in tuple(self._pending.values()):
            if not pending.told:
                self._tell(pending)

    def _on_error(self, frame: ErrorFrame) -> ResendLater | None:
        if frame.code == TokenExpired.code:
            raise TokenExpired
        if frame.code == Unauthenticated.code:
            raise Unauthenticated(frame.message)
        if self._bearer.is_renewing(frame.ref):
            if frame.retry_after_s is not None:
                return ResendLater(ref=frame.ref, after_s=frame.retry_after_s, why=frame.message)
            self._bearer.refused()  # the token said whose it is in no way that we read, and the server knows better
            return None
        pending = self._pending.get(frame.ref)
        if pending is not None:
            is_repeatable = isinstance(pending.frame, Send | BeginUpload | UploadPiece)
            was_not_looked_at = is_repeatable or frame.code == TooManyFrames.code
            if was_not_looked_at and frame.retry_after_s is not None and pending.may_wait(frame.retry_after_s):
                return ResendLater(ref=frame.ref, after_s=frame.retry_after_s, why=frame.message)
            self._settle(frame.ref, RequestRefused(frame))
        elif frame.code == TooManyFrames.code and frame.retry_after_s is not None:
            return ResendLater(conversation=frame.conversation, after_s=frame.retry_after_s, why=frame.message)
        elif frame.code == TooManySubscriptions.code and not frame.conversation:
            for each in self._follows.values():  # hello had too many, and began none: each learns what becomes of it
                self._subscribe(each)
        elif not frame.ref and (follow := self._follows.pop(frame.conversation, None)) is not None:
            follow.sink.fail(RequestRefused(frame))
        return None

    def _on_watched(
        self, frame: IncomingEvent | DeltaFrame | ProgressFrame | IncomingReload | Resumed | StatusFrame
    ) -> None:
        follow = self._follows.get(frame.conversation)
        if follow is None:
            return
        match frame:
            case Resumed():
                follow.on_resumed(frame)
            case IncomingReload():
                follow.on_reload(frame)
            case DeltaFrame():
                follow.on_delta(frame)
            case ProgressFrame():
                follow.on_progress(frame)
            case StatusFrame():
                follow.on_status(frame)
            case IncomingEvent():
                if not follow.on_event(frame):
                    self._subscribe(follow)

    def _settle(self, ref: str, answer: Answer | Exception) -> None:
        if (pending := self._pending.pop(ref, None)) is not None:
            pending.asker.settle(answer)

    def _subscribe(self, follow: Follow) -> None:
        self._put(Subscribe(subscription=follow.ask()))

    def _tell(self, pending: _Pending) -> None:
        """In the order in which they were asked: behind one that waits for ``welcome``, the others wait as well."""
        text = encode(pending.frame)
        size_bytes = len(text) if isinstance(text, bytes) else len(text.encode())
        if self._frame_bytes_max and size_bytes > self._frame_bytes_max:
            error = TooLong(
                "frame", size_bytes=size_bytes, max_bytes=self._frame_bytes_max, bound="gateway.frame_bytes_max"
            )
            self._settle(pending.frame.ref, RequestRefused(ErrorFrame(code=error.code, message=str(error))))
        elif self._is_connected:
            self._is_held = self._is_held or (self.welcome is None and size_bytes > _LONG_BYTES)
            if not self._is_held:
                pending.told = True
                self.outgoing.append(text)

    def _put_renewal(self) -> None:
        self._put(Hello(ref=self._bearer.ref, token=self._bearer.token))

    def _put(self, frame: ClientFrame) -> None:
        if self._is_connected:
            self.outgoing.append(encode(frame))

    def __repr__(self) -> str:
        state = "connected" if self._is_connected else "disconnected"
        return f"<ClientCore {state} pending={len(self._pending)} watches={len(self._follows)}>"
