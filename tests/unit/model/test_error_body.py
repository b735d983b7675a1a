"""An error's body is read as far as it can be of use."""

import gzip
import zlib

import pytest

from torpor.model.error_body import BODY_BYTES_MAX, plain

BODY = b'{"type":"error"}'


@pytest.mark.parametrize(
    ("body", "encoding", "expected"),
    [
        (BODY, "", BODY),
        (BODY, "identity", BODY),
        (b"x" * 100_000, "", b"x" * BODY_BYTES_MAX),
        (gzip.compress(BODY, mtime=0), "gzip", BODY),
        (gzip.compress(BODY, mtime=0), " GZIP ", BODY),
        (gzip.compress(BODY, mtime=0)[:-4], "gzip", BODY),
        (zlib.compress(BODY), "deflate", BODY),
        (gzip.compress(b"x" * 10_000_000, mtime=0), "gzip", b"x" * BODY_BYTES_MAX),
        (b"\xff\xff\xff\xff", "gzip", b""),
        (BODY, "br", b""),
    ],
)
def test_a_body_is_decompressed_within_bounds_or_left_out(body: bytes, encoding: str, expected: bytes) -> None:
    assert plain(body, encoding=encoding) == expected
