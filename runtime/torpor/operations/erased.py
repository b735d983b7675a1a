"""What was erased -> whether lines that were exported before are what it was.

The tombstone of a conversation holds a digest of its records; an export has these a line each. So a copy can be
recognised by whoever has it, and nothing of what was said has to be kept for that. The digest is of all records, down
to the last one: of a copy that was made before it nothing can be told.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from torpor.operations.export import ExportHeader
from torpor.store.contract import Tombstone
from torpor.store.tombstones import RecordsDigest


class CopyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """On an export of a conversation that is not there any more."""

    records: int
    """In the copy."""
    tombstone: Tombstone | None = None
    """Of the conversation that it is, whole."""
    difference: str = ""
    """Why it is none; empty when it is one."""
    compared: bool = True
    """Whether there was anything to compare it with."""


def judged_copy(
    header: ExportHeader, lines: Iterable[bytes], *, tombstones: Sequence[Tombstone], secret: bytes
) -> CopyVerdict:
    """Args: lines: those behind the header, with their ends.  tombstones: of conversations of its name.
    secret: what their digests were made with."""
    whole, records, count = hashlib.sha256(), RecordsDigest(secret=secret), 0
    for count, line in enumerate(lines, start=1):
        whole.update(line)
        if count <= header.records:
            records.add(line.removesuffix(b"\n"))
    if count != header.records + header.blobs or whole.hexdigest() != header.digest:
        return CopyVerdict(records=header.records, difference="its lines are not those that its header tells of")
    digest = records.hexdigest()
    for tombstone in reversed(tombstones):
        if (tombstone.digest, tombstone.records) == (digest, header.records):
            return CopyVerdict(records=header.records, tombstone=tombstone)
    why = _not_comparable(header, tombstones)
    return CopyVerdict(
        records=header.records, difference=why or "what was erased here was something else", compared=not why
    )


def _not_comparable(header: ExportHeader, tombstones: Sequence[Tombstone]) -> str:
    """Why nothing can be told of it; empty when it is certainly none of what was erased."""
    if not tombstones:
        return "no conversation of its name was erased here, and a copy is compared with erased ones only"
    if not all(tombstone.digest for tombstone in tombstones):
        return "what was erased could not be read any more, so nothing can be compared"
    if later := [tombstone.records for tombstone in tombstones if tombstone.records > header.records]:
        return (
            f"it was made at record {header.records}, and what is kept of the erased conversation is one digest of all "
            f"its {later[-1]} records, so that an earlier copy cannot be recognised"
        )
    return ""
