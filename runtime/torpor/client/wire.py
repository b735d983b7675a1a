"""Frames from the server, read with tolerance, and frames for it. Pure.

A newer server may send frames, fields and event types that this client does not know. Frames and fields are ignored; of
an event of unknown type the number still counts.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

import msgspec

from torpor.records.binary import BadBinary, is_binary, packed, unpacked
from torpor.records.events import AnyEvent
from torpor.records.frames import (
    Accepted,
    ClientFrame,
    DeltaFrame,
    Done,
    ErrorFrame,
    Piece,
    ProgressFrame,
    Result,
    Resumed,
    RunStatus,
    StatusFrame,
    UploadPiece,
    Welcome,
)


class IncomingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An ``event`` frame whose event may be of a type from the future."""

    conversation: str
    epoch: int
    event: msgspec.Raw

    @property
    def number(self) -> int:
        return _NUMBER.decode(self.event).event

    @property
    def known(self) -> AnyEvent | None:
        """The event, or None when this client does not know its type."""
        return _known(self.event)


class IncomingReload(msgspec.Struct, frozen=True, kw_only=True):
    """A ``reload`` frame, likewise."""

    conversation: str
    epoch: int
    head: int
    status: RunStatus
    events: tuple[msgspec.Raw, ...] = ()

    @property
    def known(self) -> tuple[AnyEvent, ...]:
        return tuple(event for event in map(_known, self.events) if event is not None)


Incoming: TypeAlias = (
    Welcome
    | Accepted
    | IncomingEvent
    | DeltaFrame
    | ProgressFrame
    | IncomingReload
    | Resumed
    | StatusFrame
    | Done
    | Result
    | Piece
    | ErrorFrame
)


class _Tag(msgspec.Struct):
    frame: str


class _Number(msgspec.Struct):
    event: int


_TAG: Final = msgspec.json.Decoder(_Tag)
_NUMBER: Final = msgspec.json.Decoder(_Number)
_EVENT: Final = msgspec.json.Decoder(AnyEvent)
_PIECE: Final = msgspec.json.Decoder(Piece)
_ENCODER: Final = msgspec.json.Encoder()


def _decoders() -> Iterator[tuple[str, msgspec.json.Decoder[Any]]]:
    for kind in (Welcome, Accepted, DeltaFrame, ProgressFrame, Resumed, StatusFrame, Done, Result, ErrorFrame):
        yield str(kind.__struct_config__.tag), msgspec.json.Decoder(kind)
    yield "event", msgspec.json.Decoder(IncomingEvent)
    yield "reload", msgspec.json.Decoder(IncomingReload)


_DECODERS: Final = dict(_decoders())


def decode(text: str | bytes) -> Incoming | None:
    """A frame; None for what this client does not know or cannot read."""
    if isinstance(text, bytes) and is_binary(text):
        return _decoded_piece(text)
    try:
        decoder = _DECODERS.get(_TAG.decode(text).frame)
        frame: Incoming | None = decoder.decode(text) if decoder is not None else None
        if isinstance(frame, IncomingEvent):
            _NUMBER.decode(frame.event)
    except (msgspec.DecodeError, RecursionError):
        return None
    return frame


def _decoded_piece(message: bytes) -> Piece | None:
    try:
        header, data = unpacked(message)
        return msgspec.structs.replace(_PIECE.decode(header), data=data)
    except (BadBinary, msgspec.DecodeError):
        return None


def encode(frame: ClientFrame) -> str | bytes:
    """The frame as text, or with bytes behind it where it carries some. Lone surrogates travel as JSON escapes; the
    server replaces them visibly."""
    if isinstance(frame, UploadPiece):
        return packed(_ENCODER.encode(msgspec.structs.replace(frame, data=b"")), frame.data)
    try:
        return _ENCODER.encode(frame).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(frame))


def _known(event: msgspec.Raw) -> AnyEvent | None:
    try:
        return _EVENT.decode(event)
    except msgspec.ValidationError:
        return None
