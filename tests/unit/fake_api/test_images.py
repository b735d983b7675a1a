"""Sizes of pictures, read from their first bytes."""

import base64
import struct

import pytest

from tests.unit.fake_api.parts import png
from torpor_fake_api.images import is_of, pixels

JPEG_HEAD = b"\xff\xd8\xff\xe0\x00\x04JF\xff\xc0\x00\x11\x08" + struct.pack(">HH", 30, 40)
WEBP = b"RIFF\x00\x00\x00\x00WEBP"


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (base64.b64decode(png(300, 200)), (300, 200)),
        (b"GIF89a" + struct.pack("<HH", 300, 200), (300, 200)),
        (JPEG_HEAD, (40, 30)),
        (WEBP + b"VP8X" + bytes(8) + b"\x2b\x01\x00\xc7\x00\x00", (300, 200)),
        (WEBP + b"VP8L" + bytes(5) + struct.pack("<I", 299 | 199 << 14), (300, 200)),
        (WEBP + b"VP8 " + bytes(10) + struct.pack("<HH", 300, 200), (300, 200)),
    ],
)
def test_the_size_stands_in_the_first_bytes(data: bytes, size: tuple[int, int]) -> None:
    assert pixels(data) == size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture",
        b"\x89PNG\r\n\x1a\n....",
        b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00",
        b"\xff\xd8\xff\xda",
        b"\xff\xd8\xff\xda\x00\x02\x00",
        WEBP + b"VP9 ",
    ],
)
def test_what_shows_no_size_has_none(data: bytes) -> None:
    assert pixels(data) is None


def test_the_first_bytes_tell_the_kind() -> None:
    assert is_of("image/jpeg", JPEG_HEAD)
    assert not is_of("image/png", JPEG_HEAD)
