"""One request carried out on the writing connection, in whatever transaction is open, and why it was refused.

Above: the commit core, which decides about transactions. Below: ``incoming``, through which appends go.
"""

import sqlite3
from typing import Final

import msgspec

from torpor.errors import DuplicateMessage, Fenced, InvariantBroken, JobLost, JournalCorrupt, TorporError, WrongSequence
from torpor.records.ids import ConversationKey
from torpor.store.contract import Head
from torpor.store.requests import (
    Acquire,
    Append,
    AskHead,
    Begin,
    ClaimJob,
    DropJob,
    Erase,
    HastenJobs,
    JobRequest,
    Outcome,
    PutSnapshot,
    Quarantine,
    RedoJob,
    Release,
    Renew,
    Request,
    SettleJob,
    Tidy,
)
from torpor.store.sqlite import incoming, jobs
from torpor.store.sqlite.connection import damaged, is_damage
from torpor.store.sqlite.erasing import erase

FAULTS: Final = (sqlite3.Error, OverflowError, TypeError, ValueError, msgspec.MsgspecError)
"""What ``carry_out`` may raise; ``concerns_one`` tells whose it is."""
_REFUSALS: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)

_PUT_SNAPSHOT: Final = """
INSERT INTO snapshots (number, seq, version, padding, data)
    SELECT number, :seq, :version, zeroblob(1024), :data FROM conversations
    WHERE tenant = :tenant AND owner = :owner AND conversation = :conversation
        AND seq >= :seq AND :fence = (SELECT number FROM boot)"""
_BEFORE_SNAPSHOT: Final = """
CREATE TEMP TRIGGER before_snapshot BEFORE INSERT ON snapshots BEGIN
    DELETE FROM snapshots WHERE number = new.number;
END"""
"""The new snapshot takes the pages of the old one; an update would need pages for both, and the file never shrinks."""
_QUARANTINE: Final = """
UPDATE conversations SET quarantine = :reason, quarantine_kind = iif(:reason = '', '', :kind),
    quarantined_us = iif(:reason = '', 0, :at_us), quarantine_seq = iif(:reason = '', 0, seq)
    WHERE tenant = :tenant AND owner = :owner AND conversation = :conversation"""
_HEAD: Final = "SELECT seq, event, batch_id FROM conversations WHERE tenant = ? AND owner = ? AND conversation = ?"
_RECEIPT: Final = """
SELECT receipt FROM receipts JOIN conversations USING (number)
    WHERE tenant = ? AND owner = ? AND conversation = ? AND message_id = ?"""


def prepare(db: sqlite3.Connection) -> None:
    """Make ``db`` able to ``carry_out``."""
    incoming.prepare(db)
    db.execute(_BEFORE_SNAPSHOT)


def carry_out(db: sqlite3.Connection, request: Request) -> Outcome:
    """Raises: FAULTS: nothing was written. An ``AskHead`` and a ``Tidy`` have their turn after the commit."""
    match request:
        case Append():
            incoming.insert(db, [incoming.row_of(request)])
        case Begin():
            _begin(db, request)
        case PutSnapshot():
            return _put_snapshot(db, request)
        case Quarantine(key=key):
            named = {"tenant": key.tenant, "owner": key.owner, "conversation": key.conversation}
            db.execute(_QUARANTINE, {"reason": request.reason, "kind": request.kind, "at_us": request.at_us, **named})
        case ClaimJob() | SettleJob() | RedoJob() | DropJob():
            return _change_job(db, request)
        case HastenJobs():
            return jobs.hasten(db, request)
        case Erase(key=key, fence=fence):
            return _why_fenced(db, key, fence) or erase(db, request)
        case AskHead() | Tidy():
            pass
        case _:
            return InvariantBroken(f"SQLite keeps no leases, yet was asked for {type(request).__name__}")
    return None


def _begin(db: sqlite3.Connection, request: Begin) -> None:
    """All batches or, with an error, none; in the transaction that is open, or in one of its own."""
    db.execute("SAVEPOINT beginning")
    try:
        incoming.insert(db, [incoming.row_of(append) for append in request.appends])
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK TO beginning")
            db.execute("RELEASE beginning")
        raise
    db.execute("RELEASE beginning")


def _put_snapshot(db: sqlite3.Connection, request: PutSnapshot) -> TorporError | None:
    key, snapshot = request.key, request.snapshot
    values = {
        "tenant": key.tenant,
        "owner": key.owner,
        "conversation": key.conversation,
        "fence": request.fence,
        "seq": snapshot.seq,
        "version": snapshot.version,
        "data": snapshot.data,
    }
    if db.execute(_PUT_SNAPSHOT, values).rowcount == 1:
        return None
    if fenced := _why_fenced(db, key, request.fence):
        return fenced
    return WrongSequence(key.path, expected_seq=snapshot.seq, head_seq=head_of(db, key).seq)


def _change_job(db: sqlite3.Connection, request: JobRequest) -> TorporError | None:
    if jobs.change(db, request):
        return None
    if isinstance(request, ClaimJob | SettleJob) and (fenced := _why_fenced(db, request.key, request.fence)):
        return fenced
    return JobLost(request.key.path, job=request.id)


def concerns_one(exc: Exception) -> bool:
    """Whether a request met it by itself: a check, a value that cannot be stored, a damaged page; not the medium's."""
    return not isinstance(exc, sqlite3.Error) or isinstance(exc, _REFUSALS) or is_damage(exc)


def why_refused(db: sqlite3.Connection, request: Request, exc: Exception) -> TorporError:
    """What the sender is told when ``exc`` concerns this request alone."""
    if is_damage(exc) and not isinstance(request, AskHead | Acquire | Renew | Release | HastenJobs | Tidy):
        return damaged(request.key, exc)
    if isinstance(request, Begin):
        request = request.appends[0]
    if not isinstance(request, Append):
        return InvariantBroken(f"{type(request).__name__} cannot be stored: {exc}")
    key, numbers = request.key, request.numbers
    if fenced := _why_fenced(db, key, request.fence):
        return fenced
    head = head_of(db, key)
    if head.seq != numbers.expected_seq:
        return WrongSequence(key.path, expected_seq=numbers.expected_seq, head_seq=head.seq)
    for message_id in request.dedupe:
        found = db.execute(_RECEIPT, (key.tenant, key.owner, key.conversation, message_id)).fetchone()
        if found:
            return DuplicateMessage(key.path, message_id=message_id, receipt=found[0].encode())
    if numbers.expected_event not in {None, head.event}:
        return InvariantBroken(f"batch for {key.path!r} follows event {numbers.expected_event}, not {head.event}")
    return InvariantBroken(f"batch for {key.path!r} cannot be stored: {exc}")


def _why_fenced(db: sqlite3.Connection, key: ConversationKey, fence: int) -> Fenced | None:
    (newest,) = db.execute("SELECT number FROM boot").fetchone()
    return None if fence == newest else Fenced(key.path, fence=fence, newer=newest)


def head_of(db: sqlite3.Connection, key: ConversationKey) -> Head:
    found = db.execute(_HEAD, (key.tenant, key.owner, key.conversation)).fetchone()
    return Head(seq=found[0], event=found[1], batch_id=found[2]) if found else Head()


def asked_head(db: sqlite3.Connection, key: ConversationKey) -> Head | JournalCorrupt:
    try:
        return head_of(db, key)
    except sqlite3.Error as exc:
        if not is_damage(exc):
            raise
        return damaged(key, exc)
