"""What a program wrote last to standard error, without the values that it was given and nothing that a terminal obeys.

Above: ``program``. A program that writes much waits until it was read, as at any full pipe.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

import anyio
import anyio.abc

from torpor.toolhost.process_output import cleaned

_KEPT_BYTES: Final = 4_096
_LINES: Final = 3
_LINE_CHARS: Final = 200
_PIECE_BYTES: Final = 65_536
_PAUSE_S: Final = 0.02
"""Behind a full piece: at most 3 MB a second are read of one program, so that others are served."""
_VALUE_CHARS_MIN: Final = 4
"""Shorter values are no secrets, and would be found in any text."""
_PADDED: Final = re.compile(r"\[masked\][A-Za-z0-9+/_-]{0,3}={1,2}")
"""The end of Base64 behind what was found of it."""
_BASE64_SKIPPED: Final = (0, 2, 3)
"""Characters that what stands before it changes, by its bytes beyond threes."""
_ENCODED_CHARS_MIN: Final = 8
"""Less of Base64 would be found in any text."""
_MASK: Final = "[masked]"


class Printed:
    """Of one program. Args: values: that may be secret, and are told as ``[masked]``, also where they are encoded."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for form in _forms(value) if len(form) >= _VALUE_CHARS_MIN}
        self._values = sorted(found, key=len, reverse=True)
        self._kept = bytearray()
        self._is_cut = False
        self.is_over = anyio.Event()
        """Set once nothing more comes."""

    async def read(self, stream: anyio.abc.ByteReceiveStream) -> None:
        """To its end."""
        try:
            while True:
                piece = await stream.receive(_PIECE_BYTES)
                self.add(piece)
                if len(piece) == _PIECE_BYTES:
                    await anyio.sleep(_PAUSE_S)
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            return
        finally:
            self.is_over.set()

    def add(self, piece: bytes) -> None:
        self._kept += piece
        self._is_cut = self._is_cut or len(self._kept) > _KEPT_BYTES
        del self._kept[:-_KEPT_BYTES]

    @property
    def last(self) -> str:
        """The last lines of it; a line whose beginning was not kept is not told, since it may begin within a value."""
        lines = cleaned(self._kept.decode(errors="replace")).split("\n")[self._is_cut :]
        text = "\n".join(line.rstrip() for line in lines if line.strip())
        for value in self._values:
            text = text.replace(value, _MASK)
        text = _PADDED.sub(_MASK, text)
        return "\n".join(line[:_LINE_CHARS] for line in text.split("\n")[-_LINES:])


def _forms(value: str) -> Iterator[str]:
    """How programs write it: as it is, in an address, in JSON, and in Base64, alone or behind something else."""
    yield value
    yield quote(value)
    yield quote(value, safe="")
    yield quote_plus(value)
    yield json.dumps(value)[1:-1]
    yield b64encode(value.encode()).decode().rstrip("=")
    for ahead, skipped in enumerate(_BASE64_SKIPPED):
        whole = (ahead + len(value.encode())) // 3 * 4  # what comes behind it changes the characters from here on
        encoded = b64encode(b"\0" * ahead + value.encode()).decode()[skipped:whole]
        if len(encoded) >= _ENCODED_CHARS_MIN:
            yield encoded
            yield encoded.replace("+", "-").replace("/", "_")
