"""A pipe by which a program that knows nothing of it ends with this process, however this one ends.

The program has the reading end, and nobody ever writes. When the last writing end is gone, which is ours, the system
kills the group of the program: it needs no turn of anybody, and no heed of the program's. What left the group, or
closed the pipe, is not reached. Linux only; elsewhere nothing is tied.

Of ``fcntl(2)``: ``F_SETOWN``, ``F_SETSIG`` and ``O_ASYNC`` belong to the open file, which the program shares. A signal
at the death of the parent, ``PR_SET_PDEATHSIG``, would be one of the thread that started it, and for the program alone.
"""

import fcntl
import os
import signal
import sys
from contextlib import suppress
from types import TracebackType
from typing import Self


class Lifeline:
    """Of one program; to be entered before it is started, and left once nothing is left of it.

    Raises: OSError: there is no room for a pipe.
    """

    def __init__(self) -> None:
        self._theirs, self._ours = os.pipe()

    @property
    def passed(self) -> tuple[int, ...]:
        """What the program has to inherit."""
        return (self._theirs,)

    def tie(self, group: int) -> None:
        """Have the processes of ``group`` killed at the end of this process, or of the context."""
        if sys.platform == "linux":
            with suppress(OSError):  # it has ended already
                fcntl.fcntl(self._theirs, fcntl.F_SETOWN, -group)
                fcntl.fcntl(self._theirs, fcntl.F_SETSIG, signal.SIGKILL)
                fcntl.fcntl(self._theirs, fcntl.F_SETFL, fcntl.fcntl(self._theirs, fcntl.F_GETFL) | os.O_ASYNC)
        os.close(self._theirs)
        self._theirs = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self._theirs, self._ours):
            if end >= 0:
                os.close(end)
