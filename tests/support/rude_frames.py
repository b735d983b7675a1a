"""Strategies for what a client should not send: frames with something wrong in them, and bytes that are no frames.

Every kind of frame of the protocol is taken from the table, so that a new one is fuzzed from its first day.
"""

import json
import struct
from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from tests.support.gateway_table import KINDS, example
from torpor.records.frames import ClientFrame

_NAMES: Final = st.sampled_from(("c1", "c2", "default/alice/c1", "default/bob/c1", "a/b/c/d", "", "../..", "\ud83d"))
_TEXT: Final = st.text(st.characters(), max_size=20)
"""Lone surrogates too: JSON can write them."""
_NUMBERS: Final = st.integers() | st.sampled_from((-1, 2**31, 2**53, 2**63, 2**64, 10**400)) | st.floats()
_JUNK: Final = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def told_frames(draw: st.DrawFn, kind: type[ClientFrame] | None = None) -> str:
    """A frame of that or of some kind as JSON, with up to three fields missing, unknown or of another type."""
    told: dict[str, Any] = msgspec.to_builtins(example(kind or draw(st.sampled_from(KINDS)), draw(_NAMES)))
    for _ in range(draw(st.integers(0, 3))):
        field = draw(st.sampled_from(sorted(told)) | _TEXT) if told else draw(_TEXT)
        if draw(st.booleans()):
            told.pop(field, None)
        else:
            told[field] = draw(_JUNK)
    return json.dumps(told)


@st.composite
def torn_frames(draw: st.DrawFn) -> str:
    """One that ends too early, or has something in the middle that does not belong there."""
    text = draw(told_frames())
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from(("", "}", '"', "\\", "\\ud8", "\x00", "[" * 2_000)) | _TEXT)


def texts() -> st.SearchStrategy[str]:
    """What may come as one text frame; UTF-8 can write it."""
    return (told_frames() | torn_frames() | st.text(max_size=30) | _JUNK.map(json.dumps)).filter(_is_utf_8)


def _is_utf_8(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


@st.composite
def raw_frames(draw: st.DrawFn) -> bytes:
    """A WebSocket frame of RFC 6455, any bit of whose head may be wrong, and whose length may be a lie."""
    payload = draw(st.binary(max_size=40) | texts().map(str.encode))
    first = draw(st.integers(0, 255) | st.sampled_from((0x81, 0x82, 0x88, 0x89, 0x8A, 0x01, 0x00, 0x80)))
    length = len(payload) if draw(st.booleans()) else draw(st.sampled_from((0, 1, 125, 126, 65_535, 2**31, 2**63 - 1)))
    is_masked = draw(st.sampled_from((True, True, True, False)))
    bit = 0x80 if is_masked else 0
    if length < 126 and draw(st.booleans()):
        head = struct.pack("!BB", first, bit | length)
    elif length < 65_536 and draw(st.booleans()):
        head = struct.pack("!BBH", first, bit | 126, length)
    else:
        head = struct.pack("!BBQ", first, bit | 127, length)
    mask = draw(st.binary(min_size=4, max_size=4)) if is_masked else b""
    masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)) if mask else payload
    return head + mask + masked
