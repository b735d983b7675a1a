"""One stored conversation -> the verdict on it; reads row by row, and keeps one conversation at a time."""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Lane, Rest, StepOptions, next_step
from torpor.errors import JournalCorrupt
from torpor.operations.verify import Differs, Verification, check_blobs
from torpor.records.ids import ConversationKey
from torpor.records.journal import SubagentFinished
from torpor.store.codec import checksum_of
from torpor.store.contract import Blobs, Tombstone
from torpor.store.sqlite.auditing import AuditReader, StoredConversation, StoredRow

_OF_THE_DIRECTORY: Final = ("agent", "title", "created_us", "updated_us", "is_archived", "is_failed")
TakeRecord = Callable[[bytes], None]
"""Gets each record as it is written, once its row was taken."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of verifying a conversation."""

    path: str
    records: int
    """Taken; those before the one that differs."""
    requests: int
    """Rebuilt, and equal to what the journal says was sent."""
    blobs: tuple[str, ...] = ()
    """Handles of those that records name."""
    seq: int = 0
    """The first record that differs; 0 when none does, or none can be named."""
    difference: str = ""
    """What differs; empty when nothing does."""
    retired: int = 0
    """Sub-agents that worked for it whose journals are not kept any longer; their digests are in records of its own."""
    erased: Tombstone | None = None
    """Of a conversation that is not there any more, since it was erased."""


def check_row(row: StoredRow, *, key: ConversationKey) -> None:
    """Raises: Differs: the row is not as it was written, or is another conversation's."""
    batch = row.batch
    if row.is_older:
        return
    if row.checksum is None:
        raise Differs(batch.first_seq, f"its row, up to record {batch.last_seq}, has no checksum, expected one")
    found = checksum_of(key, batch.records, first_seq=batch.first_seq)
    if found != row.checksum:
        what = f"its row, up to record {batch.last_seq}, has checksum {found}, expected {row.checksum}"
        raise Differs(batch.first_seq, what)


def nothing(record: bytes) -> None:
    """Does nothing with it."""


async def audited(
    stored: StoredConversation,
    blobs: Blobs,
    *,
    take: TakeRecord = nothing,
    verification: Verification | None = None,
) -> Verdict:
    """Verify everything that is stored of a conversation. Raises: StoreUnavailable: it cannot be read now."""
    verification = verification or Verification(snapshot=stored.snapshot)
    found, seq, difference = tuple[str, ...](), 0, ""
    try:
        for row in stored.rows:
            records = verification.row(row.batch)  # first, since it names a record where it can
            check_row(row, key=stored.key)
            for record in records:
                take(bytes(record))
        verification.end(stored.head)
        if stored.begins_after:
            raise Differs(1, f"its row names position {stored.begins_after} before it, expected none")
        verification.check_directory({name: getattr(stored, name) for name in _OF_THE_DIRECTORY})
        receipts = ((row.message_id, row.receipt) for row in stored.receipts)
        if stored.key.is_child:
            _check_no_receipts(receipts)
        else:
            verification.check_receipts(receipts, event_now=stored.event_now)
        if stored.head.seq and not stored.head.batch_id:
            raise Differs(stored.head.seq, "the directory names no append, expected the one that wrote it")
        if stored.key.is_child:
            _check_not_due(stored)
        else:
            _check_due(stored, verification.state)
        found = await check_blobs(blobs, stored.key, verification.handles)
    except Differs as exc:
        seq, difference = exc.seq, exc.what
    except JournalCorrupt as exc:
        at_end = verification.records == stored.head.seq
        seq, difference = 0 if at_end else verification.records + 1, exc.reason
    return Verdict(
        path=stored.key.path,
        records=verification.records,
        requests=verification.requests,
        blobs=found,
        seq=seq,
        difference=difference,
    )


def _check_due(stored: StoredConversation, state: ConversationState) -> None:
    """The mark that has it woken stands exactly while something is to be done."""
    rests = isinstance(next_step(state, Lane.TURN, StepOptions(), stored.updated_us), Rest)
    if rests and stored.due_us is not None:
        raise Differs(0, "the directory says that it is due, and nothing is to be done in it")
    if not rests and stored.due_us is None:
        raise Differs(0, "something is to be done in it, and the directory does not say that it is due")


def _check_no_receipts(receipts: Iterable[tuple[str, bytes]]) -> None:
    """What a sub-agent is told came from no client."""
    for message_id, _ in receipts:
        raise Differs(0, f"message {message_id!r} of a sub-agent has a receipt, expected none")


def _check_not_due(stored: StoredConversation) -> None:
    """A sub-agent may have ended anywhere, and nobody wakes it."""
    if stored.due_us is not None:
        raise Differs(0, "the directory says that it is due, which a sub-agent never is")


async def verdict_on(
    reader: AuditReader,
    key: ConversationKey | str,
    *,
    blobs: Blobs,
    ends: dict[ConversationKey, SubagentFinished] | None = None,
) -> Verdict:
    """On a conversation as ``reader.keys`` names it.

    Args: ends: what was read of sub-agents' ends, and not compared yet; a conversation adds to it and a sub-agent takes
        its own, so that each has to come behind whom it worked for.
    Raises: StoreUnavailable: it cannot be read now.
    """
    ends = {} if ends is None else ends
    if isinstance(key, str):
        return Verdict(path=key, records=0, requests=0, difference="its name is not text")
    try:
        stored = reader.stored(key)
    except JournalCorrupt as exc:
        return Verdict(path=key.path, records=0, requests=0, difference=exc.reason)
    if stored is None:
        return _gone(reader, key)
    verification = Verification(snapshot=stored.snapshot, said_end=ends.pop(key, None))
    verdict = await audited(stored, blobs, verification=verification)
    kept = {below: end for end in verification.ends if not _is_gone(reader, below := key.child(end.child))}
    verdict = msgspec.structs.replace(verdict, retired=len(verification.ends) - len(kept))
    ends.update(kept)
    if key.is_child and not verdict.difference and _is_gone(reader, key.root):
        verdict = msgspec.structs.replace(verdict, difference="the conversation that it works for is not there")
    # Erased while it was read, it ends anywhere.
    return _gone(reader, key) if verdict.difference and _is_gone(reader, key) else verdict


def _is_gone(reader: AuditReader, key: ConversationKey) -> bool:
    try:
        return reader.stored(key) is None
    except JournalCorrupt:
        return False


def _gone(reader: AuditReader, key: ConversationKey) -> Verdict:
    """On one that is not there."""
    if tombstones := reader.tombstones(key):
        return Verdict(path=key.path, records=0, requests=0, erased=tombstones[-1])
    if key.is_child:  # it went when its days were over, and none of it is left
        return Verdict(path=key.path, records=0, requests=0)
    return Verdict(path=key.path, records=0, requests=0, difference="it is not there any more")
