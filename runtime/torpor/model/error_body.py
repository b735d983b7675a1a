"""Bounds what a host's error answer costs: its body is read as far as it can be of use, and no further.

The SDK reads such a body whole and decodes it as the answer's own headers say; a few megabytes of gzip are gigabytes
then, and some names of encodings end in a crash. So the body is taken off its connection here, before the SDK looks at
it, and a short, plain one is left in its place.
"""

import zlib
from typing import Any, Final

import anyio
import structlog

BODY_BYTES_MAX: Final = 16_384
"""Decompressed; an envelope is a few hundred."""
_READ_BYTES_MAX: Final = 65_536
"""As it comes."""
_READ_S: Final = 5.0
"""A body that drips is told as far as it came."""
_CLOSE_S: Final = 1.0
_WINDOW_ANY: Final = zlib.MAX_WBITS | 32
"""Gzip and zlib alike."""
_log = structlog.get_logger()


async def bound_error(response: Any, *, httpx: Any) -> None:
    """Put a short plain body in place of the one that an answer other than a success has; an ``httpx`` event hook.

    Cancellation: at once, and the connection is closed.
    """
    if response.is_success:
        return
    body, stream = b"", response.stream
    try:
        with anyio.move_on_after(_READ_S):
            async for read in stream:
                body += read
                if len(body) > _READ_BYTES_MAX:
                    break
    except httpx.HTTPError as exc:
        _log.debug("model.error_body_lost", status=response.status_code, why=type(exc).__name__)
    finally:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await stream.aclose()
    encoding = response.headers.pop("content-encoding", "")
    response.headers.pop("content-length", None)
    response.headers["content-type"] = "text/plain; charset=utf-8"
    response.stream = httpx.ByteStream(plain(body, encoding=encoding))


def plain(body: bytes, *, encoding: str) -> bytes:
    """The beginning of a body without its compression; empty where that is none we know, or broken from the start."""
    match encoding.strip().lower():
        case "" | "identity":
            return body[:BODY_BYTES_MAX]
        case "gzip" | "x-gzip" | "deflate":
            try:
                return zlib.decompressobj(_WINDOW_ANY).decompress(body, BODY_BYTES_MAX)
            except zlib.error:
                return b""
    return b""
