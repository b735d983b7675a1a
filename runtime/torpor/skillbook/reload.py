"""Keeps the catalogue of a home current while people edit its skills.

Above: the composition root, which loads it at the start and watches from then on; the turn and the tools, which read
``current``. Below: ``load`` in a thread. A refresh puts a whole new catalogue in place or none.
"""

from collections.abc import Sequence

import anyio
import anyio.to_thread
import msgspec
import structlog
from anyio.abc import TaskStatus

from torpor.file_watch import watch
from torpor.ordinary_files import shown
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.load import Shelf, SkillRoot, load_shelf
from torpor.skillbook.options import SkillOptions

_log = structlog.get_logger()


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What a refresh came to; names as skills are addressed, sorted."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Another text, another entry in the index, or other files."""
    removed: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    """Places of files that cannot be loaded as they are since this refresh."""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.broken)


class SkillBook:
    """The skills of some folders, the first of which wins a name."""

    def __init__(self, roots: Sequence[SkillRoot], *, options: SkillOptions) -> None:
        self._roots = tuple(roots)
        self._options = options
        self._shelf = Shelf()
        self._refreshing = anyio.Lock()
        # Threads that hang on a dead file system are given up, and must not use up everybody's.
        self._threads = anyio.CapacityLimiter(2)
        self.current = Catalogue(self._shelf, options=options)
        """Replaced whole; whoever works with one for longer keeps it in a variable."""

    def load(self) -> None:
        """Read all of them; blocks. For the start, before anything else uses this object."""
        self._shelf = load_shelf(self._roots, before=self._shelf, options=self._options)
        self.current = Catalogue(self._shelf, options=self._options)
        for problem in self.current.problems:
            _log.warning("skill.problem", place=problem.place, code=problem.diagnostic.code)

    async def refresh(self) -> Changes:
        """Read again what may have changed, and put it in place; one refresh at a time.

        A file that broke keeps its last good version and is told in ``current.problems``. Where reading takes longer
        than its deadline, everything stays as it is.

        Cancellation: nothing is put in place.
        """
        async with self._refreshing:
            before = self._shelf
            with anyio.move_on_after(self._options.scan_deadline_s) as deadline:
                shelf, catalogue = await anyio.to_thread.run_sync(
                    self._read, before, abandon_on_cancel=True, limiter=self._threads
                )
            if deadline.cancelled_caught:
                _log.error("skill.scan_timed_out", deadline_s=self._options.scan_deadline_s)
                return Changes()
            changes = _changes(self.current, catalogue, before=before, after=shelf)
            self._shelf = shelf
            self.current = catalogue
        _tell(changes, catalogue)
        return changes

    async def watching(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Refresh whenever files change, until cancelled; returns at once where the options say not to."""
        if self._options.watch == "off":
            task_status.started()
            return
        await watch(
            [root.path for root in self._roots],
            changed=self._refresh,
            is_polling=self._options.watch == "poll",
            look_s=self._options.look_s,
            task_status=task_status,
        )

    async def _refresh(self) -> None:
        await self.refresh()

    def _read(self, before: Shelf) -> tuple[Shelf, Catalogue]:
        shelf = load_shelf(self._roots, before=before, options=self._options)
        return shelf, Catalogue(shelf, options=self._options)

    def __repr__(self) -> str:
        return f"<SkillBook {self.current!r} broken={len(self._shelf.broken)}>"


def _changes(old: Catalogue, new: Catalogue, *, before: Shelf, after: Shelf) -> Changes:
    had, has = old.versions(), new.versions()
    return Changes(
        added=tuple(sorted(has.keys() - had.keys())),
        changed=tuple(sorted(name for name in has.keys() & had.keys() if has[name] != had[name])),
        removed=tuple(sorted(had.keys() - has.keys())),
        broken=_broken(before, after),
    )


def _broken(before: Shelf, after: Shelf) -> tuple[str, ...]:
    places = [place for place, sign in after.broken.items() if before.broken.get(place) != sign]
    return tuple(sorted(shown("/".join(parts)) for _, parts in places))


def _tell(changes: Changes, catalogue: Catalogue) -> None:
    for name in changes.added:
        _log.info("skill.added", skill=name)
    for name in changes.changed:
        _log.info("skill.reloaded", skill=name)
    for name in changes.removed:
        _log.info("skill.removed", skill=name)
    for place in changes.broken:
        _log.warning("skill.broken", place=place, **_reason(catalogue, place))


def _reason(catalogue: Catalogue, place: str) -> dict[str, str | int]:
    """File, line and words of the first error that is told of the folder ``place``; nothing where none is."""
    for problem in catalogue.problems:
        _, _, file = problem.place.partition("/")
        if problem.diagnostic.severity == "error" and f"{file}/".startswith(f"{place}/"):
            found = problem.diagnostic
            return {"file": problem.place, "line": found.line, "code": found.code, "why": found.message}
    return {}
