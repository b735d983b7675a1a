"""Looks at the first bytes of a picture: its kind and its size in pixels; decodes nothing."""

import re
import struct
from typing import Final, NamedTuple

_MAGIC: Final = {
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
MEDIA_TYPES: Final = frozenset(_MAGIC)
_JPEG_SIZES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the frames that say how large the picture is."""


class Pixels(NamedTuple):
    width: int
    height: int


def is_of(media_type: str, data: bytes) -> bool:
    """Whether ``data`` begins as such a picture does."""
    return bool(_MAGIC[media_type].match(data))


def pixels(data: bytes) -> Pixels | None:
    """The size of a picture of one of the ``MEDIA_TYPES``; None when the bytes do not tell."""
    for kind, magic in _MAGIC.items():
        if magic.match(data):
            try:
                return _READERS[kind](data)
            except (struct.error, IndexError):
                return None
    return None


def _png(data: bytes) -> Pixels | None:
    return Pixels(*struct.unpack(">II", data[16:24])) if data[12:16] == b"IHDR" else None


def _gif(data: bytes) -> Pixels:
    return Pixels(*struct.unpack("<HH", data[6:10]))


def _jpeg(data: bytes) -> Pixels | None:
    at = 2
    while data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _JPEG_SIZES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return Pixels(width, height)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _webp(data: bytes) -> Pixels | None:
    match data[12:16]:
        case b"VP8X":
            return Pixels(1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little"))
        case b"VP8L":
            (bits,) = struct.unpack("<I", data[21:25])
            return Pixels(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return Pixels(width & 0x3FFF, height & 0x3FFF)
        case _:
            return None


_READERS: Final = {"image/jpeg": _jpeg, "image/png": _png, "image/gif": _gif, "image/webp": _webp}
