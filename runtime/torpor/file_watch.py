"""Tells when files below some paths change, for parts that read them again.

Above: whatever keeps a parsed copy of files that people edit. It knows nothing of what the files mean, and it may tell
once too often: ``changed`` has to look for itself. A path need not exist yet and may be replaced by another one; it is
looked for at a fixed pace. Where the system cannot notify (no inotify, its limit reached, some network mounts), files
are looked at instead, and it is asked again from time to time: a limit may have been raised.
"""

import math
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from stat import S_ISDIR
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import anyio
import anyio.to_thread
import structlog
from anyio.abc import TaskStatus

if TYPE_CHECKING:
    from watchfiles.main import FileChange

_Identity: TypeAlias = tuple[int, ...] | None
"""What tells a file from its next version; None where there is none."""

_Found = TypeVar("_Found")

_STEP_MS: Final = 100
"""Silence that ends a burst of changes; also how fast a cancelled watch ends."""
_BURST_MS: Final = 1_000
"""The longest burst that is waited for."""

_POLLED_SHARE: Final = 0.05
"""Of the time that polling may spend on looking; large trees are looked at less often."""
_CHECKED_SHARE: Final = 0.005
"""Likewise, beside notifications: what comes just when the library begins to wait anew, it drops."""
_AGAIN_S: Final = 600.0
"""Between two attempts at notifications that failed: each costs a line in the log and a look of the reader's."""

_log = structlog.get_logger()


async def watch(
    paths: Sequence[Path],
    *,
    changed: Callable[[], Awaitable[None]],
    is_polling: bool = False,
    look_s: float = 1.0,
    again_s: float = _AGAIN_S,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Await ``changed`` after each burst of changes below ``paths``, until cancelled; one call at a time.

    It is called once without a cause when watching begins, at most ``look_s`` later, so that nothing is missed between
    the reader's last look and the first notification. What it raises is a fault of the reader's: it is logged, and the
    next burst is told all the same. No fault of the watching library ends the watch either; for a while it polls.

    Args:
        paths: files, or folders with all that is below them; links are not followed.
        is_polling: look at every file each ``look_s`` instead of asking the system for notifications.
        look_s: between two looks whether a path has appeared, vanished or been replaced.
        again_s: how long it polls after notifications failed, before it asks for them again.

    Cancellation: ends within about 0.1 s.
    """
    stop = anyio.Event()
    tell = partial(_told, changed, paths)
    async with anyio.create_task_group() as tasks:
        # The thread that waits for notifications cannot be cancelled; it looks at the event.
        tasks.start_soon(_set_when_cancelled, stop, name="file_watch:stop")
        task_status.started()
        polled_until_s = math.inf if is_polling else -math.inf
        while True:
            there = await _looked(_identities, paths)
            existing = [path for path, identity in zip(paths, there, strict=True) if identity is not None]
            if anyio.current_time() < polled_until_s:
                seen = await _looked(_trees, paths)
                await _polled(_trees, paths, seen=seen, changed=tell, look_s=look_s, until_s=polled_until_s)
            elif not existing:
                await _polled(_identities, paths, seen=there, changed=tell, look_s=look_s)
            elif await _notified(_bursts(existing, look_s=look_s, stop=stop), paths, there, changed=tell):
                polled_until_s = anyio.current_time() + again_s


async def _told(changed: Callable[[], Awaitable[None]], paths: Sequence[Path]) -> None:
    try:
        await changed()
    except Exception:  # noqa: BLE001  # a background sweep's edge: one bad edit must not end the process
        _log.error("file_watch.reader_failed", paths=[ascii(str(path)) for path in paths], exc_info=True)


async def _set_when_cancelled(event: anyio.Event) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        event.set()


async def _polled(
    look: Callable[[Sequence[Path]], object],
    paths: Sequence[Path],
    *,
    seen: object,
    changed: Callable[[], Awaitable[None]],
    look_s: float,
    until_s: float = math.inf,
) -> None:
    """Await ``changed`` at once, and return at the first look that differs from ``seen``, or after ``until_s``."""
    await changed()
    while anyio.current_time() < until_s:
        began_s = anyio.current_time()
        if await _looked(look, paths) != seen:
            return
        await anyio.sleep(max(look_s, (anyio.current_time() - began_s) / _POLLED_SHARE))


def _bursts(paths: Sequence[Path], *, look_s: float, stop: anyio.Event) -> "AsyncGenerator[set[FileChange], None]":
    """Changes as they come; an empty set after ``look_s`` without any."""
    # Extension module with a thread of its own; what never watches need not load it.
    from watchfiles import awatch  # noqa: PLC0415

    look_ms = max(int(look_s * 1_000), 1)
    return awatch(
        *paths,
        stop_event=stop,
        debounce=_BURST_MS,
        step=min(_STEP_MS, look_ms),
        rust_timeout=look_ms,
        yield_on_timeout=True,
        # Its own polling tells whole seconds only and misses the second of two quick edits.
        force_polling=False,
        ignore_permission_denied=True,
    )


async def _notified(
    bursts: "AsyncGenerator[set[FileChange], None]",
    paths: Sequence[Path],
    there: tuple[_Identity, ...],
    *,
    changed: Callable[[], Awaitable[None]],
) -> bool:
    """Await ``changed`` for each burst until a path is not what it was; returns whether to poll for now."""
    is_first = True
    versions = _Versions(paths)
    async with aclosing(bursts):
        while True:
            try:
                changes = await anext(bursts, None)
            except FileNotFoundError:
                return False  # it went away between the look and the watch
            # Limits of the system, names that are no UTF-8, and whatever else; some come in groups.
            except Exception as exc:  # noqa: BLE001  # a background sweep's edge, with a library from elsewhere below
                _log.warning("file_watch.polling", reason=_reason(exc))
                return True
            is_replaced = await _looked(_identities, paths) != there or _are_removed(paths, changes)
            is_other = await versions.are_other(at_once=bool(changes) or is_first)
            if changes or is_first or is_replaced or is_other:
                await changed()
            if is_replaced or changes is None:
                return False
            is_first = False


class _Versions:
    """What was below some paths at the last look."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._seen: dict[str, _Identity] = {}
        self._due_s = 0.0

    async def are_other(self, *, at_once: bool) -> bool:
        """Whether something is not what it was. Looks ``at_once``, or when it may look again; False in between."""
        began_s = anyio.current_time()
        if not at_once and began_s < self._due_s:
            return False
        before, self._seen = self._seen, await _looked(_trees, self._paths)
        now_s = anyio.current_time()
        self._due_s = now_s + (now_s - began_s) / _CHECKED_SHARE
        return self._seen != before


def _reason(exc: BaseException) -> str:
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return str(exc) or type(exc).__name__


async def _looked(look: Callable[[Sequence[Path]], _Found], paths: Sequence[Path]) -> _Found:
    return await anyio.to_thread.run_sync(look, paths)


def _identities(paths: Sequence[Path]) -> tuple[_Identity, ...]:
    """Device and inode of each path; of a file also when it changed last, since the next file of that name may be given
    the inode of the one before, which nobody is notified about."""
    found: list[_Identity] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            found.append(None)
        else:
            changed_ns = 0 if S_ISDIR(status.st_mode) else status.st_ctime_ns
            found.append((status.st_dev, status.st_ino, changed_ns))
    return tuple(found)


def _are_removed(paths: Sequence[Path], changes: "set[FileChange] | None") -> bool:
    """Whether a watched path itself went, whatever stands there now."""
    gone = {Path(path) for kind, path in changes or () if kind.raw_str() == "deleted"}
    return not gone.isdisjoint(paths)


def _trees(paths: Sequence[Path]) -> dict[str, _Identity]:
    """What is below ``paths``, and of which version."""
    versions: dict[str, _Identity] = {}
    for path in paths:
        _note(os.fspath(path), versions)
        for folder, folders, files in os.walk(path):
            for name in (*folders, *files):
                _note(os.path.join(folder, name), versions)  # noqa: PTH118  # as os.walk does, for thousands of files
    return versions


def _note(path: str, versions: dict[str, _Identity]) -> None:
    try:
        status = os.stat(path, follow_symlinks=False)  # noqa: PTH116  # likewise
    except OSError:
        versions[path] = None
    else:
        versions[path] = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
