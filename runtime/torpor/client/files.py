"""Files to a server and back, a piece at a time, over as many connections as it takes.

Above: ``TorporClient``, which asks. A piece follows when the one before it was answered, so no more than one is ever in
memory beside the file; where an upload was cut off, the server tells from where it goes on.
"""

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec

from torpor.client.failures import FileDiffers, RequestRefused
from torpor.records.frames import BeginUpload, ClientFrame, Fetch, FinishUpload, Piece, Result, UploadPiece

PIECE_BYTES: Final = 262_144
_OUT_OF_STEP: Final = frozenset({"upload_out_of_step", "unknown_upload"})
_BEGINNINGS_MAX: Final = 8
"""Of one upload, before the server's answers are believed to be all there will be."""
Row = dict[str, Any]
_Kind = TypeVar("_Kind")


class Ask(msgspec.Struct, frozen=True):
    """How requests are made."""

    new_id: Callable[[], str]
    ask: Callable[[ClientFrame, type[Any]], Awaitable[Any]]


async def upload(by: Ask, data: bytes, *, name: str, upload: str, piece_bytes: int = PIECE_BYTES) -> Row:
    """See ``TorporClient.upload``."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data is {type(data).__name__}, expected bytes, such as Path.read_bytes() gives")
    digest = hashlib.sha256(data)
    upload = upload or _upload_id(digest.digest(), name)
    for left in reversed(range(_BEGINNINGS_MAX)):
        begin = BeginUpload(ref=by.new_id(), upload=upload, name=name, size_bytes=len(data), sha256=digest.hexdigest())
        try:
            received: int = (await by.ask(begin, Result)).rows[0]["received_bytes"]
            while received < len(data):
                piece = data[received : received + piece_bytes]
                frame = UploadPiece(ref=by.new_id(), upload=upload, offset=received, data=piece)
                received = (await by.ask(frame, Result)).rows[0]["received_bytes"]
            row: Row = (await by.ask(FinishUpload(ref=by.new_id(), upload=upload), Result)).rows[0]
            row = {"name": "", "pages": 0, **row}  # the server leaves out what is empty
        except RequestRefused as exc:
            if exc.code not in _OUT_OF_STEP or not left:
                raise
        else:
            return row
    raise AssertionError("the last beginning ends with an answer or an error")


def _upload_id(digest: bytes, name: str) -> str:
    """The same for the same file, so that whoever sends it again goes on where they were."""
    return f"u_{hashlib.sha256(name.encode(errors='replace') + b'/' + digest).hexdigest()[:32]}"


async def fetched(by: Ask, conversation: str, blob: str, *, piece_bytes: int = PIECE_BYTES) -> bytes:
    """See ``TorporClient.fetch``."""
    pieces: list[bytes] = []
    offset = 0
    while True:
        frame = Fetch(ref=by.new_id(), conversation=conversation, blob=blob, offset=offset, size_bytes=piece_bytes)
        piece: Piece = await by.ask(frame, Piece)
        pieces.append(piece.data)
        offset += len(piece.data)
        if not piece.data:
            break
    data = b"".join(pieces)
    if hashlib.sha256(data).hexdigest() != blob:
        raise FileDiffers(blob, size_bytes=len(data))
    return data
