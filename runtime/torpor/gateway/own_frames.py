"""What people do with their conversations as a whole: one function per frame, listed in ``rules``.

Operators name those of others by path.
"""

import re
from typing import Final

import msgspec
import structlog

from torpor.conversation.title import titled
from torpor.errors import BadFrame, TooLong, UnknownConversation
from torpor.gateway.auth import Principal, Scope
from torpor.gateway.desk import Desk
from torpor.gateway.wire import key_named
from torpor.records.commands import (
    ArchiveConversation,
    Command,
    CreateConversation,
    RenameConversation,
    RetractMessage,
)
from torpor.records.frames import (
    Archive,
    Create,
    Delete,
    Done,
    Fork,
    ReadBundle,
    Rename,
    Result,
    Retract,
    ServerFrame,
    Unarchive,
)
from torpor.records.ids import CONVERSATION_ID
from torpor.supervisor.contract import Reply
from torpor.supervisor.forking import ForkConversation

_HANDLE: Final = re.compile(r"[0-9a-f]{64}")
_log = structlog.get_logger()


def create(desk: Desk, frame: Create, by: Principal) -> None:
    _post(desk, frame, by, CreateConversation(agent=frame.agent, title=titled(frame.title)))


def rename(desk: Desk, frame: Rename, by: Principal) -> None:
    _post(desk, frame, by, RenameConversation(principal=by.subject, title=titled(frame.title)))


def archive(desk: Desk, frame: Archive, by: Principal) -> None:
    _post(desk, frame, by, ArchiveConversation(principal=by.subject))


def unarchive(desk: Desk, frame: Unarchive, by: Principal) -> None:
    _post(desk, frame, by, ArchiveConversation(principal=by.subject, is_archived=False))


def retract(desk: Desk, frame: Retract, by: Principal) -> None:
    if not CONVERSATION_ID.fullmatch(frame.message_id):
        raise BadFrame("message_id is not an id, expected 1..64 letters, digits, '_' or '-'")
    _post(desk, frame, by, RetractMessage(principal=by.subject, message_id=frame.message_id))


def fork(desk: Desk, frame: Fork, by: Principal) -> None:
    source = key_named(frame.conversation, by=by)
    if not CONVERSATION_ID.fullmatch(frame.into):
        raise BadFrame("into is not an id, expected 1..64 letters, digits, '_' or '-'")
    if frame.before and not CONVERSATION_ID.fullmatch(frame.before):
        raise BadFrame("before is not an id, expected 1..64 letters, digits, '_' or '-'")
    asked = ForkConversation(
        source=source,
        into=msgspec.structs.replace(source, conversation=frame.into),
        before=frame.before,
        title=titled(frame.title),
        principal=by.subject,
        is_operators=by.may(Scope.OPERATOR),
    )

    async def forked() -> ServerFrame:
        try:
            await desk.ports.forks.fork(asked)
        except UnknownConversation:
            raise UnknownConversation(frame.conversation) from None
        return Done(ref=frame.ref)

    desk.request(frame, forked)


def delete(desk: Desk, frame: Delete, by: Principal) -> None:
    key = key_named(frame.conversation, by=by)

    async def deleted() -> ServerFrame:
        try:
            await begun.wait()
        except UnknownConversation:
            raise UnknownConversation(frame.conversation) from None
        return Done(ref=frame.ref)

    # Begun before the next frame is looked at, unless there is no place for the answer, which is waited for later.
    desk.request(frame, deleted)
    begun = desk.ports.directory.begin_delete(key, principal=by.subject)


def bundle(desk: Desk, frame: ReadBundle, by: Principal) -> None:
    """Of its owner's blobs only what a sub-agent of this very conversation left."""
    unknown = UnknownConversation(frame.conversation, otherwise="or none of its sub-agents left that bundle")
    try:
        key = key_named(frame.conversation, by=by)
    except UnknownConversation:
        raise unknown from None  # in the same words, wherever it is found out
    if not _HANDLE.fullmatch(frame.bundle):
        raise BadFrame("bundle is not a handle, expected 64 hexadecimal digits")

    async def found() -> Result:
        ports, most = desk.ports, desk.options.result_bytes_max
        is_named = await ports.journals.names_bundle(key, frame.bundle)
        content = await ports.bundles.get(key, frame.bundle) if is_named else None
        if content is None:
            if is_named:  # deleted in between, or damaged
                _log.warning("gateway.bundle_missing", conversation=key.path, bundle=frame.bundle)
            raise unknown
        if len(content) > most:
            raise TooLong("bundle", size_bytes=len(content), max_bytes=most, bound="gateway.result_bytes_max")
        return Result(ref=frame.ref, rows=({"bundle": frame.bundle, "content": msgspec.json.decode(content)},))

    desk.request_rows(frame, found)


def _post(desk: Desk, frame: Create | Rename | Archive | Unarchive | Retract, by: Principal, command: Command) -> None:
    """Answered by ``done``; nothing is looked up before, so that no later frame overtakes it."""

    async def done(reply: Reply) -> ServerFrame:
        try:
            await reply.wait()
        except UnknownConversation:
            raise UnknownConversation(frame.conversation) from None
        return Done(ref=frame.ref)

    desk.post(frame, key_named(frame.conversation, by=by), command, answer=done)
