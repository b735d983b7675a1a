"""What a program wrote last to standard error, without the values that it was given and nothing that a terminal obeys.

Above: ``program``. A program that writes much waits until it was read, as at any full pipe.
"""

from collections.abc import Iterable
from typing import Final

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
_MASK: Final = "[masked]"


class Printed:
    """Of one program. Args: values: that may be secret, and are told as ``[masked]``."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {value for value in values if len(value) >= _VALUE_CHARS_MIN}
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
        return "\n".join(line[:_LINE_CHARS] for line in text.split("\n")[-_LINES:])
