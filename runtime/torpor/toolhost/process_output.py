"""What tools in a worker process print, told to the log piece by piece, with nothing in it that a terminal obeys.

Above: ``processes``. A process that prints much waits until it was read, as at any full pipe.
"""

import codecs
import re
from collections.abc import Callable
from typing import Final

import anyio
import anyio.abc
import structlog

_PIECE_BYTES: Final = 4_096
"""Of one line of the log."""
_PAUSE_S: Final = 0.02
"""Behind a full piece: at most 200 kB a second are told of one process, so that others are served."""
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_log = structlog.get_logger()


async def tell(printed: anyio.abc.ByteReceiveStream, *, tool: Callable[[], str]) -> None:
    """Until its end. Args: tool: whose call runs, or ran last."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while True:
            piece = await printed.receive(_PIECE_BYTES)
            if text := cleaned(decoder.decode(piece)):
                _log.info("tool.printed", tool=tool(), printed=text)
            if len(piece) == _PIECE_BYTES:
                await anyio.sleep(_PAUSE_S)
    except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
        return


def cleaned(text: str) -> str:
    """With lines and tabs, and no other control."""
    return _OBEYED.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n")).strip("\n")
