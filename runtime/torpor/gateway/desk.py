"""What a known client asks for: one rule per frame, in one table.

Above: the session, which knows who is asking and hands frames over one after the other. Below: the supervisor's port,
the journals, and one ``Subscription`` for each conversation that is watched.

A command is posted before the next frame is looked at; its answer is queued when it is durable. ``RULES`` says which
scope a frame needs and who serves it; a frame that is missing there fails a test.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec
import structlog

from torpor.clock import Clock
from torpor.conversation.text import clean, is_blank
from torpor.errors import (
    BadFrame,
    Busy,
    ClientError,
    EmptyMessage,
    JournalCorrupt,
    NothingToCancel,
    NotPermitted,
    Quarantined,
    StoreError,
    TorporError,
    Unavailable,
    UnknownConversation,
)
from torpor.gateway.auth import Principal, Scope
from torpor.gateway.options import GatewayOptions
from torpor.gateway.outbox import Outbox
from torpor.gateway.rows import fitting, job_row, listing_row, record_row
from torpor.gateway.subscription import Ports, Spawn, Subscription
from torpor.gateway.wire import error_frame, job_named, key_named
from torpor.records.commands import (
    CancelTurn,
    Command,
    Hibernate,
    Receipt,
    Refreshed,
    RefreshLiveContext,
    SendMessage,
    Wake,
)
from torpor.records.commands import UpdateContext as TellContext
from torpor.records.context import ContextPart, WorkingContext
from torpor.records.frames import (
    Accepted,
    Ack,
    Cancel,
    ClientFrame,
    CountJobs,
    Done,
    DropJob,
    HibernateConversation,
    InspectConversation,
    ListConversations,
    ListJobs,
    Refresh,
    Result,
    RetryJob,
    Send,
    ServerFrame,
    Subscribe,
    ThawConversation,
    Unsubscribe,
    UpdateContext,
)
from torpor.records.ids import CONVERSATION_ID, ConversationKey
from torpor.store.job_contract import JobState
from torpor.supervisor.contract import Reply

_SEQ_MAX: Final = 2**62
"""Stores hold 64 bits."""
_ENCODER: Final = msgspec.json.Encoder()
_log = structlog.get_logger()


class Desk:
    """Serves the frames of one session."""

    def __init__(self, *, ports: Ports, outbox: Outbox, spawn: Spawn, clock: Clock, options: GatewayOptions) -> None:
        self._ports = ports
        self._outbox = outbox
        self._spawn = spawn
        self._clock = clock
        self._options = options
        self._subscriptions: dict[ConversationKey, Subscription] = {}
        self._waiting = 0
        """Requests whose answer is on its way."""

    def serve(self, frame: ClientFrame, *, by: Principal) -> None:
        """Do what ``frame`` asks, or set it going.

        Raises: ClientError: nothing was done.
        """
        rule = RULES[type(frame)]
        if not by.may(rule.scope):
            raise NotPermitted(_tag(frame), scope=rule.scope.value)
        rule.serve(self, frame, by)

    def close(self) -> None:
        """End every subscription. Requests go on where they are; their answers have nobody to go to."""
        for subscription in self._subscriptions.values():
            subscription.end()
        self._subscriptions.clear()

    def _subscribe(self, frame: Subscribe, by: Principal) -> None:
        watched = frame.subscription
        key = key_named(watched.conversation, by=by)
        if (previous := self._subscriptions.get(key)) is not None:
            previous.end()
        elif len(self._subscriptions) >= self._options.subscriptions_max:
            raise BadFrame(f"connection watches {len(self._subscriptions)} conversations, which is the most it can")
        subscription = Subscription(
            key,
            name=watched.conversation,
            ports=self._ports,
            outbox=self._outbox,
            spawn=self._spawn,
            options=self._options,
        )
        self._subscriptions[key] = subscription
        subscription.start(watched.cursor)
        self._look_after(key)

    def _look_after(self, key: ConversationKey) -> None:
        """Whoever opens a conversation that nobody used for long finds how things stand told anew."""

        async def look() -> None:
            with suppress(TorporError):  # watching does not depend on it, and the next message looks again
                row = await self._ports.journals.describe(key)
                age_us = self._clock.now_us() - row.updated_us if row is not None else 0
                if age_us > self._options.reopened_after_s * 1_000_000:
                    await self._ports.conversations.deliver(key, RefreshLiveContext(is_opened=True))

        self._spawn(look, name="open")

    def _unsubscribe(self, frame: Unsubscribe, by: Principal) -> None:
        subscription = self._subscriptions.pop(key_named(frame.conversation, by=by), None)
        if subscription is not None:
            subscription.end()
        if frame.ref:
            self._outbox.put(Done(ref=frame.ref))

    def _ack(self, frame: Ack, by: Principal) -> None:
        # The journal keeps everything, so nothing is freed by it; only the name is checked.
        key_named(frame.conversation, by=by)

    def _send(self, frame: Send, by: Principal) -> None:
        key = key_named(frame.conversation, by=by)
        self._post(frame, key, self._message(frame, by), answer=partial(self._accepted, frame))

    def _message(self, frame: Send, by: Principal) -> SendMessage:
        if not CONVERSATION_ID.fullmatch(frame.message_id):
            raise BadFrame("message_id is not an id, expected 1..64 letters, digits, '_' or '-'")
        cleaned = clean(frame.text)
        if is_blank(cleaned.text) and frame.resume is None:
            raise EmptyMessage
        if (size_bytes := len(cleaned.text.encode())) > self._options.message_bytes_max:
            raise BadFrame(f"message has {size_bytes} bytes, expected at most {self._options.message_bytes_max}")
        return SendMessage(
            message_id=frame.message_id,
            principal=by.subject,
            text=cleaned.text,
            cleaned=cleaned.replaced,
            when_busy=frame.when_busy,
            agent=frame.agent,
            resume=frame.resume,
            lookback=frame.lookback,
        )

    async def _accepted(self, frame: Send, reply: Reply) -> ServerFrame:
        receipt = await reply.wait()
        if not isinstance(receipt, Receipt):
            raise TypeError(f"a message was answered with {type(receipt).__name__}, expected a receipt")
        return Accepted(
            conversation=frame.conversation,
            message_id=receipt.message_id,
            event=receipt.event,
            at_us=receipt.at_us,
            position=receipt.position,
            ref=frame.ref,
        )

    def _update_context(self, frame: UpdateContext, by: Principal) -> None:
        key = key_named(frame.conversation, by=by)
        context = _cleaned(frame.context)
        if (size_bytes := len(_ENCODER.encode(context))) > self._options.context_bytes_max:
            raise BadFrame(f"context has {size_bytes} bytes, expected at most {self._options.context_bytes_max}")
        command = TellContext(principal=by.subject, context=context, agent=frame.agent)
        self._post(frame, key, command, answer=partial(self._done, frame))

    async def _done(self, frame: UpdateContext, reply: Reply) -> ServerFrame:
        await reply.wait()
        return Done(ref=frame.ref)

    def _refresh(self, frame: Refresh, by: Principal) -> None:
        key = key_named(frame.conversation, by=by)

        async def refresh() -> ServerFrame:
            await self._must_exist(key, name=frame.conversation)
            answer = await self._ports.conversations.deliver(key, RefreshLiveContext())
            return Done(ref=frame.ref, outcome=answer if isinstance(answer, Refreshed) else "")

        self._request(frame, refresh)

    def _cancel(self, frame: Cancel, by: Principal) -> None:
        key = key_named(frame.conversation, by=by)
        reason = "client" if (key.tenant, key.owner) == (by.tenant, by.owner) else "operator"
        command = CancelTurn(principal=by.subject, reason=reason)
        self._post(frame, key, command, answer=partial(self._cancelled, frame, key))

    async def _cancelled(self, frame: Cancel, key: ConversationKey, reply: Reply) -> ServerFrame:
        try:
            await reply.wait()
        except NothingToCancel:
            # Asked only now: a look before posting would let a later frame overtake the cancel.
            if await self._ports.journals.describe(key) is None:
                raise UnknownConversation(frame.conversation) from None
            raise
        return Done(ref=frame.ref)

    def _list(self, frame: ListConversations, by: Principal) -> None:
        everybody = by.may(Scope.OPERATOR)
        after = key_named(frame.after, by=by) if frame.after else None
        limit = _clamp(frame.limit, low=1, high=self._options.list_rows_max)

        async def rows() -> ServerFrame:
            listings = await self._ports.conversations.list_conversations(
                tenant=None if everybody else by.tenant,
                owner=None if everybody else by.owner,
                limit=limit + 1,
                after=after,
            )
            found = fitting(map(listing_row, listings[:limit]), size_bytes=self._options.result_bytes_max)
            return Result(ref=frame.ref, rows=found, more=len(found) < len(listings))

        self._request(frame, rows)

    def _inspect(self, frame: InspectConversation, by: Principal) -> None:
        key = key_named(frame.path, by=by)
        limit = _clamp(frame.limit, low=1, high=self._options.list_rows_max)

        async def rows() -> ServerFrame:
            await self._must_exist(key, name=frame.path)
            seq = _clamp(frame.seq, low=0, high=_SEQ_MAX)
            records = await self._ports.journals.records_after(key, seq=seq, limit=limit + 1)
            found = fitting(map(record_row, records[:limit]), size_bytes=self._options.result_bytes_max)
            return Result(ref=frame.ref, rows=found, more=len(found) < len(records))

        self._request(frame, rows)

    def _hibernate(self, frame: HibernateConversation, by: Principal) -> None:
        deadline_s = min(max(0.0, frame.deadline_s), self._options.hibernate_deadline_max_s)
        self._operate(frame, key_named(frame.path, by=by), Hibernate(deadline_s=deadline_s))

    def _thaw(self, frame: ThawConversation, by: Principal) -> None:
        self._operate(frame, key_named(frame.path, by=by), Wake())

    def _list_jobs(self, frame: ListJobs, by: Principal) -> None:
        after = job_named(frame.after, by=by) if frame.after else None
        limit = _clamp(frame.limit, low=1, high=self._options.list_rows_max)
        state = _job_state(frame.state)

        async def rows() -> ServerFrame:
            jobs = await self._ports.jobs.listed(state=state, limit=limit + 1, after=after)
            found = fitting(map(job_row, jobs[:limit]), size_bytes=self._options.result_bytes_max)
            return Result(ref=frame.ref, rows=found, more=len(found) < len(jobs))

        self._request(frame, rows)

    def _count_jobs(self, frame: CountJobs, by: Principal) -> None:
        async def row() -> ServerFrame:
            return Result(ref=frame.ref, rows=(msgspec.structs.asdict(await self._ports.jobs.counted()),))

        self._request(frame, row)

    def _retry_job(self, frame: RetryJob, by: Principal) -> None:
        self._change_job(frame, by, self._ports.jobs.redo)

    def _drop_job(self, frame: DropJob, by: Principal) -> None:
        self._change_job(frame, by, self._ports.jobs.drop)

    def _change_job(
        self,
        frame: RetryJob | DropJob,
        by: Principal,
        change: Callable[[ConversationKey, str], Awaitable[None]],
    ) -> None:
        key, job = job_named(frame.path, by=by)

        async def changed() -> ServerFrame:
            await change(key, job)
            return Done(ref=frame.ref)

        self._request(frame, changed)

    def _operate(self, frame: HibernateConversation | ThawConversation, key: ConversationKey, command: Command) -> None:
        async def operate() -> ServerFrame:
            await self._must_exist(key, name=frame.path)
            await self._ports.conversations.deliver(key, command)
            return Done(ref=frame.ref)

        self._request(frame, operate)

    async def _must_exist(self, key: ConversationKey, *, name: str) -> None:
        if await self._ports.journals.describe(key) is None:
            raise UnknownConversation(name)

    def _post(
        self,
        frame: ClientFrame,
        key: ConversationKey,
        command: Command,
        *,
        answer: Callable[[Reply], Awaitable[ServerFrame]],
    ) -> None:
        self._check_requests()
        reply = self._ports.conversations.post(key, command)
        self._request(frame, lambda: answer(reply))

    def _check_requests(self) -> None:
        if self._waiting >= self._options.requests_max:
            raise Busy("this connection", waiting=self._waiting, retry_after_s=self._options.busy_retry_s)

    def _request(self, frame: ClientFrame, work: Callable[[], Awaitable[ServerFrame]]) -> None:
        """Queue the answer, or the error, that ``work`` ends with."""
        self._check_requests()
        self._waiting += 1
        self._spawn(lambda: self._answer(frame, work), name=f"answer:{_tag(frame)}")

    async def _answer(self, frame: ClientFrame, work: Callable[[], Awaitable[ServerFrame]]) -> None:
        try:
            answer = await work()
        except ClientError as exc:
            answer = error_frame(exc, of=frame)
        except JournalCorrupt as exc:
            _log.exception("gateway.journal_unreadable", conversation=exc.key)
            answer = error_frame(Quarantined(exc.key, reason="its journal cannot be read"), of=frame)
        except StoreError:
            _log.warning("gateway.store_unreadable", frame=_tag(frame), exc_info=True)
            retry_s = self._options.unavailable_retry_s
            answer = error_frame(Unavailable("the store cannot be read now", retry_after_s=retry_s), of=frame)
        except Exception:  # noqa: BLE001 - the edge of a client frame; resending it must not end another connection
            _log.exception("gateway.frame_failed", frame=_tag(frame))
            answer = error_frame(None, of=frame)
        finally:
            self._waiting -= 1
        self._outbox.put(answer)

    def __repr__(self) -> str:
        return f"<Desk subscriptions={len(self._subscriptions)} waiting={self._waiting}>"


class Rule(msgspec.Struct, frozen=True):
    """What a frame needs, and who serves it."""

    scope: Scope
    serve: Callable[[Desk, Any, Principal], None]


RULES: Final[dict[type[ClientFrame], Rule]] = {
    Subscribe: Rule(Scope.CHAT, Desk._subscribe),
    Unsubscribe: Rule(Scope.CHAT, Desk._unsubscribe),
    Send: Rule(Scope.CHAT, Desk._send),
    Refresh: Rule(Scope.CHAT, Desk._refresh),
    UpdateContext: Rule(Scope.CHAT, Desk._update_context),
    Cancel: Rule(Scope.CHAT, Desk._cancel),
    Ack: Rule(Scope.CHAT, Desk._ack),
    ListConversations: Rule(Scope.CHAT, Desk._list),
    HibernateConversation: Rule(Scope.OPERATOR, Desk._hibernate),
    ThawConversation: Rule(Scope.OPERATOR, Desk._thaw),
    InspectConversation: Rule(Scope.OPERATOR, Desk._inspect),
    ListJobs: Rule(Scope.OPERATOR, Desk._list_jobs),
    CountJobs: Rule(Scope.OPERATOR, Desk._count_jobs),
    RetryJob: Rule(Scope.OPERATOR, Desk._retry_job),
    DropJob: Rule(Scope.OPERATOR, Desk._drop_job),
}
"""Every frame but ``hello``, which is the session's own."""


def _cleaned(context: WorkingContext) -> WorkingContext:
    """``context`` with text that can be stored; what was replaced is visible in it."""

    def cleaned(part: ContextPart | None) -> ContextPart | None:
        return msgspec.structs.replace(part, text=clean(part.text).text) if part is not None else None

    record = context.record
    return WorkingContext(
        record=msgspec.structs.replace(record, text=clean(record.text).text) if record is not None else None,
        screen=cleaned(context.screen),
        role=cleaned(context.role),
        plan=cleaned(context.plan),
        actions=tuple(msgspec.structs.replace(part, text=clean(part.text).text) for part in context.actions),
    )


def _job_state(name: str) -> JobState | None:
    """Raises: BadFrame: there is no such state."""
    try:
        return JobState(name) if name else None
    except ValueError:
        known = ", ".join(repr(state.value) for state in JobState)
        raise BadFrame(f"jobs have no state {name[:50]!r}, expected one of {known}") from None


def _tag(frame: ClientFrame) -> str:
    return str(type(frame).__struct_config__.tag)


def _clamp(value: int, *, low: int, high: int) -> int:
    return min(max(value, low), high)
