"""The fold at one moment as bytes, and back.

A snapshot is taken between turns, so nothing waits and nothing runs in it; what it holds is the view as one text and
the few facts beside it. It is a cache: any doubt about it is answered by folding the journal.
"""

import zlib
from typing import Final

import msgspec

from torpor.conversation.state import ConversationState, LoadedSkill
from torpor.conversation.view import Preamble, Role, View
from torpor.records.blocks import Block
from torpor.records.context import WorkingContext
from torpor.records.ids import CallId
from torpor.records.journal import Usage

SNAPSHOT_VERSION: Final = 3
"""Raised when the fold or this layout changes its meaning; others are ignored."""


class BadSnapshot(ValueError):
    """The bytes are not a snapshot of this version."""


class _Layout(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    seq: int
    event: int
    created_us: int
    agent: str
    turns: int
    link: str
    size_bytes: int
    title: str = ""
    role: Role | None = None
    blocks: int = 0
    preamble: str = ""
    notes: tuple[Block, ...] = ()
    lost_calls: tuple[CallId, ...] = ()
    last_usage: Usage = Usage()
    measured_bytes: int = 0
    context: WorkingContext | None = None
    context_version: int = 0
    context_us: int = 0
    flags_digest: str = ""
    skills: tuple[LoadedSkill, ...] = ()
    lasting_bytes: int = 0
    preamble_bytes: int = 0


_CRC_BYTES: Final = 8
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Layout)


def encode_snapshot(state: ConversationState) -> bytes:
    """A checksum, a line of JSON with the facts, the preamble's body, the view's text.

    Raises: ValueError: a turn runs or messages wait, which a snapshot does not hold.
    """
    if state.turn is not None or state.queued:
        raise ValueError("a snapshot is taken between turns only")
    view = state.view
    layout = _Layout(
        seq=state.seq,
        event=state.event,
        created_us=state.created_us,
        agent=state.agent,
        title=state.title,
        turns=state.turns,
        link=view.link.hex(),
        size_bytes=view.size_bytes,
        role=view.role,
        blocks=view.blocks,
        preamble=state.preamble.digest,
        preamble_bytes=state.preamble.size_bytes,
        notes=state.notes,
        lost_calls=state.lost_calls,
        last_usage=state.last_usage,
        measured_bytes=state.measured_bytes,
        context=state.context,
        context_version=state.context_version,
        context_us=state.context_us,
        flags_digest=state.flags_digest,
        skills=state.skills,
        lasting_bytes=state.lasting_bytes,
    )
    rest = b"".join((_ENCODER.encode(layout), b"\n", bytes(state.preamble.body), view.text()))
    return b"%08x" % zlib.crc32(rest) + rest


def decode_snapshot(data: bytes) -> ConversationState:
    """The state that was encoded.

    Raises: BadSnapshot: the bytes do not hold one.
    """
    if data[:_CRC_BYTES] != b"%08x" % zlib.crc32(memoryview(data)[_CRC_BYTES:]):
        raise BadSnapshot("checksum of the snapshot does not match")
    end = data.find(b"\n")
    try:
        layout = _DECODER.decode(memoryview(data)[_CRC_BYTES : max(end, _CRC_BYTES)])
    except msgspec.DecodeError as exc:
        raise BadSnapshot(f"facts of the snapshot cannot be read: {exc}") from exc
    body_end = end + 1 + layout.preamble_bytes
    text = data[body_end:]
    if len(text) != layout.size_bytes:
        raise BadSnapshot(f"snapshot holds {len(text)} bytes of text, expected {layout.size_bytes}")
    view = View(
        [text] if text else [],
        1 if text else 0,
        layout.role,
        bytes.fromhex(layout.link),
        layout.size_bytes,
        layout.blocks,
        1 if text else 0,
    )
    return ConversationState(
        seq=layout.seq,
        event=layout.event,
        created_us=layout.created_us,
        agent=layout.agent,
        title=layout.title,
        turns=layout.turns,
        preamble=Preamble(digest=layout.preamble, body=msgspec.Raw(data[end + 1 : body_end])),
        view=view,
        notes=layout.notes,
        lost_calls=layout.lost_calls,
        last_usage=layout.last_usage,
        measured_bytes=layout.measured_bytes,
        context=layout.context,
        context_version=layout.context_version,
        context_us=layout.context_us,
        flags_digest=layout.flags_digest,
        skills=layout.skills,
        lasting_bytes=layout.lasting_bytes,
    )
