"""What another thread does: the frames of its stack that are no library's, and what it has used of the processor."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import msgspec

_FRAMES_MAX: Final = 5
_ENGINE: Final = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARY: Final = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_WAITING: Final = ("selectors.py", "_io_epoll.py", "_io_kqueue.py")
"""Where event loops wait when they have nothing to do."""
_NS: Final = 1_000_000_000


class Stack(msgspec.Struct, frozen=True, kw_only=True):
    """Of one thread at one moment."""

    frames: tuple[str, ...]
    """The innermost first, such as ``tools/payments.py:41 record_payment``; libraries are left out where others are."""
    codes: frozenset[CodeType]
    files: frozenset[str]


EMPTY: Final = Stack(frames=(), codes=frozenset(), files=frozenset())


def stack_of(thread_id: int) -> Stack:
    """Of a thread of this process; empty when it has ended, or waits for events."""
    innermost = sys._current_frames().get(thread_id)
    if innermost is None or innermost.f_code.co_filename.endswith(_WAITING):
        return EMPTY
    frames = [(frame.f_code, frame.f_lineno) for frame in _outwards(innermost)]
    own = [(code, line) for code, line in frames if _is_own(code)] or frames[:1]
    return Stack(
        frames=tuple(_told(code, line) for code, line in own[:_FRAMES_MAX]),
        codes=frozenset(code for code, _ in frames),
        files=frozenset(code.co_filename for code, _ in own),
    )


def cpu_of_s(native_id: int) -> float | None:
    """What a thread of this process has used of the processor; None where the system does not say."""
    return _schedule_s(native_id, 0)


def in_line_s(native_id: int) -> float:
    """For how long a thread of this process has waited for the processor; 0 where the system does not say."""
    return _schedule_s(native_id, 1) or 0.0


def turns_of(native_id: int) -> int:
    """How often a thread of this process has had the processor; 0 where the system does not say."""
    return _schedule(native_id, 2) or 0


def _schedule_s(native_id: int, field: int) -> float | None:
    told = _schedule(native_id, field)
    return None if told is None else told / _NS


def _schedule(native_id: int, field: int) -> int | None:
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[field])
    except (OSError, ValueError, IndexError):
        return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_own(code: CodeType) -> bool:
    file = code.co_filename
    return file.startswith(_ENGINE) or not file.startswith((*_LIBRARY, "<frozen"))


def _told(code: CodeType, line: int) -> str:
    path = Path(code.co_filename)
    return f"{'/'.join(path.parts[-2:])}:{line} {code.co_qualname}"
