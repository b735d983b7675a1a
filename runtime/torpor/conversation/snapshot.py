"""The fold at one moment as bytes, and back.

A snapshot is taken between turns, so nothing waits and nothing runs in it; what it holds is the view as one text and
the few facts beside it. It is a cache: any doubt about it is answered by folding the journal.
"""

import zlib
from typing import Final

import msgspec

from torpor.conversation.segments import TurnStart
from torpor.conversation.state import ChildState, ConversationState, EndedTurn, LiveState, LoadedSkill
from torpor.conversation.view import Mark, Preamble, Role, View
from torpor.records.blocks import Block
from torpor.records.context import WorkingContext
from torpor.records.ids import CallId, MessageId
from torpor.records.summary import Item, Summary
from torpor.records.terms import Offer, Usage

SNAPSHOT_VERSION: Final = 10
"""Raised when the fold or this layout changes its meaning; others are ignored."""


class BadSnapshot(ValueError):
    """The bytes are not a snapshot of this version."""


class _Plain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is the same in a state and on disk."""

    seq: int
    event: int
    created_us: int
    agent: str
    turns: int
    title: str = ""
    is_archived: bool = False
    changes: int = 0
    notes: tuple[Block, ...] = ()
    offers: tuple[Offer, ...] = ()
    ended: EndedTurn | None = None
    retracted: tuple[MessageId, ...] = ()
    context: WorkingContext | None = None
    context_version: int = 0
    context_told: int = 0
    context_us: int = 0
    flags_digest: str = ""
    flags: tuple[str, ...] = ()
    skills: tuple[LoadedSkill, ...] = ()
    live: LiveState = LiveState()
    said: int = 0
    recent: tuple[int, ...] = ()
    starts: tuple[TurnStart, ...] = ()
    messages: int = 0
    generation: int = 0
    covered: tuple[int, int] = (0, 0)
    summary: Summary = Summary()
    items: tuple[Item, ...] = ()
    left_out: int = 0
    left_out_turns: tuple[int, int] = (0, 0)
    is_measured: bool = True
    fold_failures: int = 0
    fold_failed_us: int = 0
    lasting_bytes: int = 0
    lost_calls: tuple[CallId, ...] = ()
    children: tuple[ChildState, ...] = ()
    last_usage: Usage = Usage()
    measured_bytes: int = 0


class _PreambleMark(msgspec.Struct, frozen=True, array_like=True):
    digest: str
    size_bytes: int


class _Layout(_Plain, frozen=True, kw_only=True, omit_defaults=True):
    """The same, and what tells where the texts behind it begin and end."""

    link: str
    size_bytes: int
    preamble: _PreambleMark
    role: Role | None = None
    blocks: int = 0
    marks: tuple[Mark, ...] = ()
    preambles: tuple[_PreambleMark, ...] = ()
    """Those before it; their bodies come first."""


_CRC_BYTES: Final = 8
_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Layout)


def encode_snapshot(state: ConversationState) -> bytes:
    """A checksum, a line of JSON with the facts, the bodies of the preambles, the view's text.

    Raises: ValueError: a turn runs or messages wait, which a snapshot does not hold.
    """
    if state.turn is not None or state.queued:
        raise ValueError("a snapshot is taken between turns only")
    view, preambles = state.view, (*state.preambles, state.preamble)
    *before, used = (_PreambleMark(each.digest, each.size_bytes) for each in preambles)
    layout = _Layout(
        **{name: getattr(state, name) for name in _Plain.__struct_fields__},
        link=view.link.hex(),
        size_bytes=view.size_bytes,
        role=view.role,
        blocks=view.blocks,
        marks=view.marks,
        preamble=used,
        preambles=tuple(before),
    )
    bodies = (bytes(each.body) for each in preambles)
    rest = b"".join((_ENCODER.encode(layout), b"\n", *bodies, view.text()))
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
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise BadSnapshot(f"facts of the snapshot cannot be read: {exc}") from exc
    preambles, body_end = list[Preamble](), end + 1
    for mark in (*layout.preambles, layout.preamble):
        begin, body_end = body_end, body_end + mark.size_bytes
        preambles.append(Preamble(digest=mark.digest, body=msgspec.Raw(data[begin:body_end])))
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
        layout.marks,
    )
    return ConversationState(
        **{name: getattr(layout, name) for name in _Plain.__struct_fields__},
        preamble=preambles.pop(),
        preambles=tuple(preambles),
        view=view,
    )
