"""Conversations read from the database file itself, whether or not a server runs on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from torpor.cli.paths import child_of, resolved
from torpor.gateway.rows import job_row, listing_row
from torpor.records.ids import CHILD_MARK
from torpor.records.journal import JournalRecord
from torpor.store.contract import DirectoryRow
from torpor.store.sqlite.reader import SqliteReader, open_to_read
from torpor.supervisor.contract import Listing

_PAGE: Final = 500
_CHILDREN_MAX: Final = 100_000
"""Sub-agents of one conversation among which a short name is looked for."""


def listed(data: Path) -> Iterator[dict[str, Any]]:
    """A row for each conversation, as a server gives it, but for what only a running one knows: ``actor`` is empty.

    Raises: StoreUnusable: there is no database, or none that can be read.
    """
    with open_to_read(data) as reader:
        for row in _rows(reader):
            yield listing_row(Listing(row=row, live=None)) | {"actor": ""}


def filed_row(data: Path, name: str) -> dict[str, Any]:
    """The row of the one conversation that ``name`` stands for. Raises: as ``records`` and ``listed``."""
    rows = {row["path"]: row for row in listed(data)}
    return rows[resolved(name, rows)]


def records(data: Path, name: str, *, child: str = "") -> Iterator[JournalRecord]:
    """The journal of the one conversation that ``name`` stands for, or of a sub-agent of it.

    Raises: click.ClickException: it stands for none, or for several, or has no such sub-agent. JournalCorrupt: at the
        record that cannot be read.
    """
    with open_to_read(data) as reader:
        keys = {row.key.path: row.key for row in _rows(reader)}
        key = keys[resolved(name, keys)]
        above = ""
        for part in child.split(CHILD_MARK) if child else ():
            below = [row.key.conversation for row in reader.children(key, limit=_CHILDREN_MAX)]
            begun = (each.removeprefix(f"{key.conversation}{CHILD_MARK}").partition(CHILD_MARK)[0] for each in below)
            found = child_of(name, part, begun=begun, above=above)
            key, above = key.child(found), f"{above}/{found}".strip("/")
        seq = 0
        while page := reader.records_after(key, seq=seq, limit=_PAGE):
            yield from page
            seq = page[-1].seq


def stored_rows(data: Path) -> Iterator[DirectoryRow]:
    """The directory, in key order. Raises: StoreUnusable: there is no database, or none that can be read."""
    with open_to_read(data) as reader:
        yield from _rows(reader)


def listed_jobs(data: Path) -> Iterator[dict[str, Any]]:
    """A row for each job, as a server gives it. One whose server was killed is running until the next start.

    Raises: StoreUnusable: there is no database, or none that can be read.
    """
    with open_to_read(data) as reader:
        after = None
        while page := reader.every_job.list_jobs(limit=_PAGE, after=after):
            yield from map(job_row, page)
            after = (page[-1].key, page[-1].id)


def counted_jobs(data: Path, now_us: int) -> dict[str, Any]:
    """How many jobs there are, as a server tells it. Raises: as ``listed_jobs``."""
    with open_to_read(data) as reader:
        return msgspec.structs.asdict(reader.every_job.count_jobs(now_us=now_us))


def _rows(reader: SqliteReader) -> Iterator[DirectoryRow]:
    after = None
    while page := reader.list_conversations(tenant=None, owner=None, limit=_PAGE, after=after):
        yield from page
        after = page[-1].key
