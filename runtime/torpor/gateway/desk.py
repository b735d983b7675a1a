"""Where the requests of one session are taken and answered, and what it watches.

Above: the functions that ``rules`` lists, one per frame. Below: the supervisor's port, the journals, and one
``Subscription`` for each conversation that is watched.

A command is posted before the next frame is looked at; its answer is queued when it is durable.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import structlog

from torpor.clock import Clock
from torpor.errors import (
    Busy,
    ClientError,
    JournalCorrupt,
    Quarantined,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooManySubscriptions,
    TorporError,
    Unavailable,
    UnknownConversation,
)
from torpor.gateway.auth import Principal, Scope
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox
from torpor.gateway.subscription import Ports, Spawn, Subscription
from torpor.gateway.wire import error_frame, key_named, may_name
from torpor.records.commands import (
    Command,
    RefreshLiveContext,
)
from torpor.records.frames import (
    Ack,
    ClientFrame,
    Done,
    ErrorFrame,
    ServerFrame,
    Subscribe,
    Unsubscribe,
)
from torpor.records.ids import ConversationKey
from torpor.supervisor.contract import Answer, Reply

_log = structlog.get_logger()


class Desk:
    """Serves the frames of one session."""

    def __init__(self, *, ports: Ports, outbox: Outbox, spawn: Spawn, clock: Clock, options: GatewayOptions) -> None:
        self.ports = ports
        self.outbox = outbox
        self._spawn = spawn
        self._clock = clock
        self.options = options
        self._subscriptions: dict[ConversationKey, Subscription] = {}
        self.pieces = 0
        """Of uploads, being written."""
        self._waiting = 0
        """Requests whose answer is on its way."""
        self._long_answers: anyio.Lock | None = None
        """Made one after the other, each once there is room for it: otherwise a client that asks for many at once, and
        reads none, would have all of them kept for it."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is watched or on its way."""
        return bool(self._waiting or self._watched())

    def close(self) -> None:
        """End every subscription. Requests go on where they are; their answers have nobody to go to."""
        for subscription in self._subscriptions.values():
            subscription.end()
        self._subscriptions.clear()

    def restrict(self, by: Principal) -> None:
        """End what ``by``, who may do less with a newer token, could not subscribe to any more."""
        for key, subscription in tuple(self._subscriptions.items()):
            if not (by.may(Scope.CHAT) and may_name(key, by=by)):
                subscription.end()
                del self._subscriptions[key]
                error = UnknownConversation(subscription.name)
                self.outbox.put(ErrorFrame(code=error.code, message=str(error), conversation=subscription.name))

    def subscribe(self, frame: Subscribe, by: Principal) -> None:
        """Watch one more conversation, or one of them from another cursor. Raises: TooManySubscriptions."""
        watched = frame.subscription
        key = key_named(watched.conversation, by=by)
        if (previous := self._subscriptions.get(key)) is not None:
            previous.end()
        elif self._watched() >= self.options.subscriptions_max:
            raise TooManySubscriptions(self.options.subscriptions_max)
        subscription = Subscription(
            key,
            name=watched.conversation,
            ports=self.ports,
            outbox=self.outbox,
            spawn=self._spawn,
            clock=self._clock,
            options=self.options,
        )
        self._subscriptions[key] = subscription
        subscription.start(watched.cursor, ref=frame.ref)
        self._look_after(key)

    def _watched(self) -> int:
        """How many are watched, once those that ended by themselves are forgotten."""
        for key in [key for key, subscription in self._subscriptions.items() if subscription.is_ended]:
            del self._subscriptions[key]
        return len(self._subscriptions)

    def _look_after(self, key: ConversationKey) -> None:
        """Whoever opens a conversation that nobody used for long finds how things stand told anew."""

        async def look() -> None:
            with suppress(TorporError):  # watching does not depend on it, and the next message looks again
                row = await self.ports.journals.describe(key)
                age_us = self._clock.now_us() - row.updated_us if row is not None else 0
                if age_us > self.options.reopened_after_s * 1_000_000:
                    await self.ports.conversations.deliver(key, RefreshLiveContext(is_opened=True))

        self._spawn(look, name="open")

    def unsubscribe(self, frame: Unsubscribe, by: Principal) -> None:
        """Watch it no more; one that is not watched is no error."""
        subscription = self._subscriptions.pop(key_named(frame.conversation, by=by), None)
        if subscription is not None:
            subscription.end()
        if frame.ref:
            self.outbox.put(Done(ref=frame.ref))

    def ack(self, frame: Ack, by: Principal) -> None:
        """The journal keeps everything, so nothing is freed by it; only the name is checked."""
        key_named(frame.conversation, by=by)

    async def must_exist(self, key: ConversationKey, *, name: str) -> None:
        """Raises: UnknownConversation: by the name that the client used."""
        if await self.ports.journals.describe(key) is None:
            raise UnknownConversation(name)

    def post(
        self,
        frame: ClientFrame,
        key: ConversationKey,
        command: Command,
        *,
        answer: Callable[[Reply], Awaitable[ServerFrame]],
    ) -> None:
        """Have ``key`` take ``command`` now, in order, and queue what ``answer`` makes of its reply.

        Raises: Busy, Unavailable: it was not taken.
        """
        self._check_requests()
        reply = self.ports.conversations.post(key, command)
        self._go_on(frame, lambda: self._answer(frame, lambda: answer(reply)))

    def tell(
        self, frame: ClientFrame, key: ConversationKey, command: Command, *, answer: Callable[[Answer], ServerFrame]
    ) -> None:
        """As ``post``, for an answer that is made without looking anything up: it needs no task.

        Raises: Busy, Unavailable: it was not taken.
        """
        self._check_requests()
        reply = self.ports.conversations.post(key, command)
        self._waiting += 1

        def settle() -> None:
            self._waiting -= 1
            try:
                said = answer(reply.result())
            except Exception as exc:  # noqa: BLE001 - the edge of a client frame; nothing of it may reach the actor
                said = self._failure(exc, of=frame)
            self.outbox.put(said)

        reply.when_done(settle)

    def _check_requests(self) -> None:
        if self._waiting >= self.options.requests_max:
            raise Busy(
                "this connection",
                waiting=self._waiting,
                bound="gateway.requests_max",
                retry_after_s=self.options.busy_retry_s,
            )

    def request(self, frame: ClientFrame, work: Callable[[], Awaitable[ServerFrame]]) -> None:
        """Queue the answer, or the error, that ``work`` ends with. Raises: Busy: too many are on their way."""
        self._check_requests()
        self._go_on(frame, lambda: self._answer(frame, work))

    def request_rows(self, frame: ClientFrame, work: Callable[[], Awaitable[ServerFrame]]) -> None:
        """As ``request``, for an answer that may be long: it waits until the client has read what is before it."""
        self._check_requests()
        self._go_on(frame, lambda: self._answer_with_rows(frame, work))

    def _go_on(self, frame: ClientFrame, answering: Callable[[], Awaitable[None]]) -> None:
        self._waiting += 1
        self._spawn(answering, name=f"answer:{tag(frame)}")

    async def _answer_with_rows(self, frame: ClientFrame, work: Callable[[], Awaitable[ServerFrame]]) -> None:
        if self._long_answers is None:
            self._long_answers = anyio.Lock()
        try:
            async with self._long_answers:
                await self.outbox.room()
                await self.outbox.send_answer(await work())
        except Exception as exc:  # noqa: BLE001 - the edge of a client frame, as below
            self.outbox.put(self._failure(exc, of=frame))
        finally:
            self._waiting -= 1

    async def _answer(self, frame: ClientFrame, work: Callable[[], Awaitable[ServerFrame]]) -> None:
        try:
            answer = await work()
        except Exception as exc:  # noqa: BLE001 - the edge of a client frame; resending it must not end another connection
            answer = self._failure(exc, of=frame)
        finally:
            self._waiting -= 1
        self.outbox.put(answer)

    def _failure(self, exc: Exception, *, of: ClientFrame) -> ServerFrame:
        """What a client is told, and the log where it is told less."""
        match exc:
            case ClientError():
                return error_frame(exc, of=of)
            case JournalCorrupt():
                _log.error("gateway.journal_unreadable", conversation=exc.key, exc_info=exc)
                return error_frame(Quarantined(exc.key, reason="its journal cannot be read"), of=of)
            case StoreError():
                is_foreseen = isinstance(exc, StoreUnavailable)
                _log.warning(
                    "gateway.store_unreadable", frame=tag(of), why=str(exc), exc_info=None if is_foreseen else exc
                )
                retry_s = self.options.unavailable_retry_s
                why = (
                    "the server's storage is full"
                    if isinstance(exc, StoreFull)
                    else "the server's storage does not answer"
                )
                return error_frame(Unavailable(why, retry_after_s=retry_s), of=of)
        _log.error("gateway.frame_failed", frame=tag(of), exc_info=exc)
        return error_frame(None, of=of)

    def __repr__(self) -> str:
        return f"<Desk subscriptions={len(self._subscriptions)} waiting={self._waiting}>"


def clamp(value: int, *, low: int, high: int) -> int:
    """``value``, or the nearer end of what is allowed."""
    return min(max(value, low), high)


def tag(frame: ClientFrame) -> str:
    """What the frame is called on the wire."""
    return str(type(frame).__struct_config__.tag)
