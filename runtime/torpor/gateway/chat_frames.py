"""What people ask for in their own conversations: one function per frame, listed in ``rules``."""

from functools import partial
from typing import Final

import msgspec

from torpor.attachment_errors import UnknownAttachment
from torpor.conversation.text import clean, is_blank
from torpor.errors import BadFrame, EmptyMessage, NothingToCancel, TooLong, UnknownConversation
from torpor.gateway.auth import Principal, Scope
from torpor.gateway.desk import Desk, clamp
from torpor.gateway.options import GatewayOptions
from torpor.gateway.pages import newest
from torpor.gateway.rows import event_row, fitting, listing_row
from torpor.gateway.wire import key_named
from torpor.records.commands import CancelTurn, Receipt, Refreshed, RefreshLiveContext, SendMessage, TellContext
from torpor.records.context import ContextPart, WorkingContext
from torpor.records.frames import (
    Accepted,
    Cancel,
    Done,
    ListConversations,
    ReadHistory,
    Refresh,
    Result,
    Send,
    ServerFrame,
    UpdateContext,
)
from torpor.records.ids import CONVERSATION_ID, ConversationKey
from torpor.supervisor.contract import Answer, Reply

_ENCODER: Final = msgspec.json.Encoder()


def send(desk: Desk, frame: Send, by: Principal) -> None:
    key = key_named(frame.conversation, by=by)
    command = _message(frame, by=by, options=desk.options)
    if frame.attachments:
        try:
            attachments = desk.ports.uploads.named(key, frame.attachments)
        except UnknownAttachment:
            raise UnknownAttachment(is_own=(key.tenant, key.owner) == (by.tenant, by.owner)) from None
        command = msgspec.structs.replace(command, attachments=attachments)
    desk.tell(frame, key, command, answer=partial(_accepted, frame))


def _message(frame: Send, *, by: Principal, options: GatewayOptions) -> SendMessage:
    if not CONVERSATION_ID.fullmatch(frame.message_id):
        raise BadFrame("message_id is not an id, expected 1..64 letters, digits, '_' or '-'")
    cleaned = clean(frame.text)
    if is_blank(cleaned.text) and frame.resume is None and not frame.attachments:
        raise EmptyMessage
    if (size_bytes := len(cleaned.text.encode())) > options.message_bytes_max:
        raise TooLong(
            "message", size_bytes=size_bytes, max_bytes=options.message_bytes_max, bound="gateway.message_bytes_max"
        )
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


def _accepted(frame: Send, receipt: Answer) -> ServerFrame:
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


def update_context(desk: Desk, frame: UpdateContext, by: Principal) -> None:
    key = key_named(frame.conversation, by=by)
    context = _cleaned(frame.context)
    if (size_bytes := len(_ENCODER.encode(context))) > desk.options.context_bytes_max:
        raise TooLong(
            "context",
            size_bytes=size_bytes,
            max_bytes=desk.options.context_bytes_max,
            bound="gateway.context_bytes_max",
        )
    command = TellContext(principal=by.subject, context=context, agent=frame.agent)
    desk.tell(frame, key, command, answer=lambda _: Done(ref=frame.ref))


def refresh(desk: Desk, frame: Refresh, by: Principal) -> None:
    key = key_named(frame.conversation, by=by)

    async def refresh() -> ServerFrame:
        await desk.must_exist(key, name=frame.conversation)
        answer = await desk.ports.conversations.deliver(key, RefreshLiveContext())
        return Done(ref=frame.ref, outcome=answer if isinstance(answer, Refreshed) else "")

    desk.request(frame, refresh)


def cancel(desk: Desk, frame: Cancel, by: Principal) -> None:
    key = key_named(frame.conversation, by=by)
    reason = "client" if (key.tenant, key.owner) == (by.tenant, by.owner) else "operator"
    command = CancelTurn(principal=by.subject, reason=reason)
    desk.post(frame, key, command, answer=partial(_cancelled, desk, frame, key))


async def _cancelled(desk: Desk, frame: Cancel, key: ConversationKey, reply: Reply) -> ServerFrame:
    try:
        await reply.wait()
    except NothingToCancel:
        # Asked only now: a look before posting would let a later frame overtake the cancel.
        if await desk.ports.journals.describe(key) is None:
            raise UnknownConversation(frame.conversation) from None
        raise
    return Done(ref=frame.ref)


def history(desk: Desk, frame: ReadHistory, by: Principal) -> None:
    """The events before a number, as many of the latest of them as fit."""
    key = key_named(frame.conversation, by=by)
    limit = clamp(frame.limit, low=1, high=desk.options.list_rows_max)

    async def rows() -> Result:
        if (row := await desk.ports.journals.describe(key)) is None:
            raise UnknownConversation(frame.conversation)
        last = row.head.event if frame.before <= 0 else min(frame.before - 1, row.head.event)
        size_bytes = desk.options.result_bytes_max
        found = await newest(desk.ports.journals, key, last=last, limit=limit, size_bytes=size_bytes, made=event_row)
        return Result(ref=frame.ref, rows=found, more=len(found) < last)

    desk.request_rows(frame, rows)


def list_conversations(desk: Desk, frame: ListConversations, by: Principal) -> None:
    everybody = by.may(Scope.OPERATOR)
    after = key_named(frame.after, by=by) if frame.after else None
    limit = clamp(frame.limit, low=1, high=desk.options.list_rows_max)

    async def rows() -> Result:
        listings = await desk.ports.conversations.list_conversations(
            tenant=None if everybody else by.tenant,
            owner=None if everybody else by.owner,
            limit=limit + 1,
            after=after,
            with_archived=frame.archived,
        )
        found = fitting(map(listing_row, listings[:limit]), size_bytes=desk.options.result_bytes_max)
        return Result(ref=frame.ref, rows=found, more=len(found) < len(listings))

    desk.request_rows(frame, rows)


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
