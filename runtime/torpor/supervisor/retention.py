"""Rows of the directory -> those that are not to be kept any longer, and why; pure.

Above: whoever deletes them, and ``torpor retention``, which only shows them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from torpor.store.contract import Cause, DirectoryRow
from torpor.supervisor.options import RetentionOptions

_DAY_US: Final = 86_400 * 1_000_000


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation that is not to be kept."""

    row: DirectoryRow
    cause: Cause
    """``AGE``, ``ARCHIVED`` or ``COUNT``; the first of them that holds."""


def retired(rows: Iterable[DirectoryRow], *, options: RetentionOptions, now_us: int) -> Iterator[Retired]:
    """The oldest first. Args: rows: all those of one owner."""
    newest_first = sorted(rows, key=lambda row: (row.updated_us, row.key), reverse=True)
    for place, row in reversed(list(enumerate(newest_first))):
        cause = _cause(row, place=place, options=options, now_us=now_us)
        if cause is not None and may_go(row):
            yield Retired(row=row, cause=cause)


def may_go(row: DirectoryRow) -> bool:
    """Whether nothing is to be done in it: by itself, or by an operator who has to look at it."""
    return row.due_us is None and not row.quarantine


def ended_before_us(days: float, *, now_us: int) -> int:
    """Before when a sub-agent must have written last, for its journal to go. Args: days: that it is kept."""
    return now_us - round(days * _DAY_US)


def _cause(row: DirectoryRow, *, place: int, options: RetentionOptions, now_us: int) -> Cause | None:
    """Args: place: among those of its owner, 0 for the newest."""
    rested_us = now_us - row.updated_us
    if options.age_days and rested_us > options.age_days * _DAY_US:
        return Cause.AGE
    if options.archived_days and row.is_archived and rested_us > options.archived_days * _DAY_US:
        return Cause.ARCHIVED
    if options.per_owner_max and place >= options.per_owner_max:
        return Cause.COUNT
    return None
