"""Frames that carry bytes: a length, a header of JSON, and the bytes behind it.

The header is the frame as it would be in text, but for its ``data``. A frame of text begins with a brace and never with
the first byte of a length, so the two cannot be taken for each other.
"""

import struct
from typing import Final

_LENGTH: Final = struct.Struct(">I")
HEADER_BYTES_MAX: Final = 65_536


class BadBinary(ValueError):
    """The bytes have no header."""


def packed(header: bytes, data: bytes) -> bytes:
    """One binary message."""
    return b"".join((_LENGTH.pack(len(header)), header, data))


def unpacked(message: bytes) -> tuple[bytes, bytes]:
    """Header and data. Raises: BadBinary."""
    if len(message) < _LENGTH.size:
        raise BadBinary(f"it has {len(message)} bytes, expected at least {_LENGTH.size}")
    (size_bytes,) = _LENGTH.unpack_from(message)
    end = _LENGTH.size + size_bytes
    if size_bytes > HEADER_BYTES_MAX or end > len(message):
        raise BadBinary(f"its header has {size_bytes} bytes, expected at most {HEADER_BYTES_MAX}, and all of them")
    return message[_LENGTH.size : end], message[end:]


def is_binary(message: bytes) -> bool:
    """Whether it was packed here."""
    return message[:1] == b"\x00"
