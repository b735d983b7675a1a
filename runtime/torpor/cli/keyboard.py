"""Lines typed on a terminal that gives its keys one by one and shows none of them."""

import os
import termios
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any, Final, Self

from torpor.cli.line_editor import LineEditor
from torpor.cli.lines import readable

_CHUNK_BYTES: Final = 4_096
_LOCAL: Final = 3
"""Position of the local modes in what ``tcgetattr`` gives."""


class Keyboard:
    """The terminal ``descriptor``, key by key within the block, and as it was behind it: ``with``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._before: list[Any] = []

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._descriptor)
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def take(self) -> None:
        """Have the keys again, which a shell takes away while the process is stopped. Ctrl-C stays a signal."""
        modes = list(self._before)
        modes[_LOCAL] &= ~(termios.ICANON | termios.ECHO)
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, modes)

    async def lines(self, show: Callable[[str], None]) -> AsyncGenerator[str, None]:
        """Each line that is entered, until Ctrl-D on an empty one; ``show`` is given the line so far."""
        editor = LineEditor()
        while not editor.has_ended:
            await readable(self._descriptor)
            keys = os.read(self._descriptor, _CHUNK_BYTES)
            if not keys:
                return
            for line in editor.typed(keys):
                show(line)
                yield line
            show(editor.text)
