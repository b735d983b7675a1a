"""Sockets to a gateway on which tests write the bytes of RFC 6455 themselves."""

import base64
import struct
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketStream

from tests.support.gateway_house import House
from tests.support.gateway_line import token_for

CLOSE: Final = 0x8


def masked(payload: bytes, *, first: int = 0x81) -> bytes:
    """A frame as RFC 6455 wants it, with a mask of zeroes."""
    length = len(payload)
    head = struct.pack("!BB", first, 0x80 | length) if length < 126 else struct.pack("!BBH", first, 0xFE, length)
    return head + bytes(4) + payload


async def opened(house: House, *, subject: str | None = "alice") -> SocketStream:
    """A socket after a good handshake, which says who it is or for None does not."""
    stream = await anyio.connect_tcp("127.0.0.1", house.gateway.port)
    await stream.send(handshake(house, subject=subject))
    with anyio.fail_after(10):
        assert b" 101 " in await stream.receive()
    return stream


def handshake(house: House, *, subject: str | None = "alice") -> bytes:
    """The request that opens a WebSocket."""
    who = f"Authorization: Bearer {token_for(subject, clock=house.clock)}\r\n" if subject is not None else ""
    key = base64.b64encode(b"0123456789abcdef").decode()
    return (
        f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
        f"Sec-WebSocket-Version: 13\r\n{who}\r\n"
    ).encode()


async def rest_of(stream: ByteStream) -> bytes:
    """Everything that comes until the other end closes."""
    heard = b""
    with anyio.fail_after(10), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        while True:
            heard += await stream.receive()
    return heard


def frames_in(heard: bytes) -> list[tuple[int, bytes]]:
    """Opcode and payload of each frame, which a server does not mask."""
    found: list[tuple[int, bytes]] = []
    while len(heard) >= 2:
        at, length = 2, heard[1]
        if length == 126:
            at, length = 4, struct.unpack("!H", heard[2:4])[0]
        found.append((heard[0] & 0x0F, heard[at : at + length]))
        heard = heard[at + length :]
    return found


def close_codes(heard: bytes) -> set[int]:
    return {struct.unpack("!H", payload[:2])[0] for opcode, payload in frames_in(heard) if opcode == CLOSE and payload}
