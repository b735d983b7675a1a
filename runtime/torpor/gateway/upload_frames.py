"""Files on their way to a message and back: one function per frame, listed in ``rules``.

Uploads are one's own, also an operator's; what is fetched is what a message of the conversation has.
"""

import re
from typing import Final

from torpor.errors import BadFrame, Busy, UnknownConversation
from torpor.gateway.auth import Principal
from torpor.gateway.desk import Desk, clamp
from torpor.gateway.wire import key_named
from torpor.records.frames import (
    BeginUpload,
    Done,
    DropUpload,
    Fetch,
    FinishUpload,
    Link,
    Piece,
    Result,
    ServerFrame,
    UploadPiece,
)
from torpor.records.ids import CONVERSATION_ID, ConversationKey

LINK_PATH: Final = "/attachments/"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_PIECES_MAX: Final = 4
"""Of one connection that are being written."""


def begin(desk: Desk, frame: BeginUpload, by: Principal) -> None:
    key = _own(frame.upload, by)
    if not _DIGEST.fullmatch(frame.sha256):
        raise BadFrame("sha256 is not a digest, expected 64 hexadecimal digits, small ones")

    async def begun() -> ServerFrame:
        received = await desk.ports.uploads.begin(
            key, frame.upload, name=frame.name, size_bytes=frame.size_bytes, sha256=frame.sha256
        )
        return _came(frame, received)

    desk.request(frame, begun)


def piece(desk: Desk, frame: UploadPiece, by: Principal) -> None:
    key = _own(frame.upload, by)
    if not frame.data:
        raise BadFrame("upload.piece has no data, expected a binary message with bytes behind its header")
    if desk.pieces >= _PIECES_MAX:
        raise Busy("this connection", waiting=desk.pieces, bound="one piece at a time", retry_after_s=0.5)
    desk.pieces += 1

    async def taken() -> ServerFrame:
        try:
            received = await desk.ports.uploads.take(key, frame.upload, offset=frame.offset, data=frame.data)
        finally:
            desk.pieces -= 1
        return _came(frame, received)

    try:
        desk.request(frame, taken)
    except Busy:
        desk.pieces -= 1
        raise


def finish(desk: Desk, frame: FinishUpload, by: Principal) -> None:
    key = _own(frame.upload, by)

    async def finished() -> ServerFrame:
        return Result(ref=frame.ref, rows=(await desk.ports.uploads.finish(key, frame.upload),))

    desk.request(frame, finished)


def drop(desk: Desk, frame: DropUpload, by: Principal) -> None:
    key = _own(frame.upload, by)

    async def dropped() -> ServerFrame:
        await desk.ports.uploads.drop(key, frame.upload)
        return Done(ref=frame.ref)

    desk.request(frame, dropped)


def fetch(desk: Desk, frame: Fetch, by: Principal) -> None:
    key = _named(frame, by)
    size_bytes = clamp(frame.size_bytes, low=1, high=desk.options.result_bytes_max)

    async def fetched() -> ServerFrame:
        await _check_named(desk, key, frame)
        data = await desk.ports.uploads.piece(key, frame.blob, offset=frame.offset, size_bytes=size_bytes)
        return Piece(ref=frame.ref, blob=frame.blob, offset=frame.offset, data=data)

    desk.request_rows(frame, fetched)


def link(desk: Desk, frame: Link, by: Principal) -> None:
    key = _named(frame, by)

    async def linked() -> ServerFrame:
        await _check_named(desk, key, frame)
        await desk.ports.uploads.size_bytes(key, frame.blob)  # a link to what is gone is of no use
        ticket, expires_us = desk.ports.uploads.link(key, frame.blob)
        return Result(ref=frame.ref, rows=({"path": f"{LINK_PATH}{ticket}", "expires_at_us": expires_us},))

    desk.request(frame, linked)


def _own(upload: str, by: Principal) -> ConversationKey:
    if not CONVERSATION_ID.fullmatch(upload):
        raise BadFrame("upload is not an id, expected 1..64 letters, digits, '_' or '-'")
    return ConversationKey(by.tenant, by.owner, "")


def _named(frame: Fetch | Link, by: Principal) -> ConversationKey:
    """Raises: UnknownConversation: in the same words, wherever it is found out."""
    try:
        key = key_named(frame.conversation, by=by)
    except UnknownConversation:
        raise _unknown(frame) from None
    if not _DIGEST.fullmatch(frame.blob):
        raise BadFrame("blob is not a name, expected 64 hexadecimal digits, small ones")
    return key


def _unknown(frame: Fetch | Link) -> UnknownConversation:
    return UnknownConversation(frame.conversation, otherwise="or no message of it has that attachment")


async def _check_named(desk: Desk, key: ConversationKey, frame: Fetch | Link) -> None:
    if not await desk.ports.journals.names_blob(key, frame.blob):
        raise _unknown(frame)


def _came(frame: BeginUpload | UploadPiece, received: int) -> Result:
    return Result(ref=frame.ref, rows=({"upload": frame.upload, "received_bytes": received},))
