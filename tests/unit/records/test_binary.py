"""Bytes behind a header, and what is none."""

import pytest

from torpor.client import wire as client_wire
from torpor.errors import BadFrame
from torpor.gateway.outbox import encoded
from torpor.gateway.wire import decode_binary
from torpor.records.binary import HEADER_BYTES_MAX, BadBinary, is_binary, packed, unpacked
from torpor.records.frames import Done, Piece, UploadPiece

DATA = bytes(range(256))


@pytest.mark.parametrize("data", [b"", b"x", DATA])
def test_header_and_bytes_come_out_as_they_went_in(data: bytes) -> None:
    assert unpacked(packed(b"{}", data)) == (b"{}", data)
    assert is_binary(packed(b"{}", data))


@pytest.mark.parametrize(
    "message", [b"", b"\x00\x00", b"\x00\x00\x00\x05abc", (HEADER_BYTES_MAX + 1).to_bytes(4) * 30_000]
)
def test_what_has_no_header_is_refused(message: bytes) -> None:
    with pytest.raises(BadBinary):
        unpacked(message)


def test_a_client_and_a_server_understand_each_other() -> None:
    piece = UploadPiece(ref="1", upload="u1", offset=7, data=DATA)
    message = client_wire.encode(piece)
    assert isinstance(message, bytes)
    assert decode_binary(message) == piece
    back = Piece(ref="1", blob="b", offset=7, data=DATA)
    assert client_wire.decode(encoded(back)) == back
    assert encoded(Done(ref="1")).startswith(b"{")


@pytest.mark.parametrize(
    "message",
    [b"", packed(b"{", b"x"), packed(b"\xff", b"x"), packed(b'{"frame":"cancel","conversation":"c1"}', b"x")],
    ids=["empty", "no-json", "no-text", "another-frame"],
)
def test_bytes_behind_anything_else_are_a_bad_frame(message: bytes) -> None:
    with pytest.raises(BadFrame):
        decode_binary(message)


@pytest.mark.parametrize(
    "message", [b"\x00", packed(b"[]", b""), packed(b"\xff", b"")], ids=["short", "list", "no-text"]
)
def test_a_client_passes_over_what_it_cannot_read(message: bytes) -> None:
    assert client_wire.decode(message) is None
