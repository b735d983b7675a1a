"""A host that answers its first requests with whatever bytes a test wants; a strict fake API answers the rest."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from torpor_fake_api.server import FakeApi

_HEAD_MAX: Final = 65_536


def event(name: str, data: object) -> bytes:
    """One event; ``data`` as JSON unless it is bytes."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data if isinstance(data, bytes) else json.dumps(data).encode())


START: Final = event(
    "message_start",
    {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 10, "output_tokens": 1}}},
)
STOP: Final = event("message_stop", {"type": "message_stop"})


def begin(index: int, **block: Any) -> bytes:
    data = {"type": "content_block_start", "index": index, "content_block": block}
    return event("content_block_start", data)


def delta(index: int, **fields: Any) -> bytes:
    return event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": fields})


def end(index: int) -> bytes:
    return event("content_block_stop", {"type": "content_block_stop", "index": index})


def text(said: str, index: int = 0) -> bytes:
    return begin(index, type="text", text="") + delta(index, type="text_delta", text=said) + end(index)


def call(arguments: str, index: int = 0, **fields: Any) -> bytes:
    block = {"type": "tool_use", "id": f"toolu_{index}", "name": "pay", "input": {}, **fields}
    piece = delta(index, type="input_json_delta", partial_json=arguments)
    return begin(index, **block) + piece + end(index)


def over(stop_reason: str = "end_turn", usage: object = None) -> bytes:
    told = {"stop_reason": stop_reason, "stop_sequence": None}
    return event("message_delta", {"type": "message_delta", "delta": told, "usage": usage}) + STOP


def streamed(*events: bytes, headers: bytes = b"") -> bytes:
    """A stream that ends with its connection."""
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n%s\r\n" % headers + b"".join(
        events
    )


def answered(status: int, body: bytes, *headers: bytes, kind: bytes = b"application/json") -> bytes:
    """A plain answer with its length."""
    lines = (b"content-type: %s" % kind, b"content-length: %d" % len(body), b"connection: close", *headers)
    return b"HTTP/1.1 %d X\r\n%s\r\n\r\n%s" % (status, b"\r\n".join(lines), body)


def error(kind: str, message: str) -> bytes:
    """The body of an error."""
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()


@asynccontextmanager
async def evil_host(api: FakeApi, *answers: bytes) -> AsyncIterator[str]:
    """Its URL; the request of each answer in turn gets these bytes."""
    left = list(answers)

    async def serve(stream: SocketStream) -> None:
        async with stream:
            try:
                request = await _request(stream)
                if left:
                    await stream.send(left.pop(0))
                else:
                    await _passed_on(request, stream, port=int(api.url.rpartition(":")[2]))
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.IncompleteRead):
                return

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.listeners[0].extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


async def _request(stream: ByteStream) -> bytes:
    """Head and body, the connection to be closed behind them."""
    buffered = BufferedByteReceiveStream(stream)
    head = await buffered.receive_until(b"\r\n\r\n", _HEAD_MAX)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    sizes: Iterable[int] = (int(line[15:]) for line in lines if line.lower().startswith(b"content-length:"))
    body = await buffered.receive_exactly(next(iter(sizes), 0))
    return b"\r\n".join((*lines, b"connection: close")) + b"\r\n\r\n" + body


async def _passed_on(request: bytes, stream: ByteStream, *, port: int) -> None:
    async with await anyio.connect_tcp("127.0.0.1", port) as api:
        await api.send(request)
        async for read in api:
            await stream.send(read)
