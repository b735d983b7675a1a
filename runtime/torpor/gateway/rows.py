"""Listings, jobs and records as the rows of a ``result`` frame. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from torpor.conversation.publish import event_of
from torpor.gateway.status import run_status
from torpor.records.journal import JournalRecord
from torpor.store.job_contract import StoredJob
from torpor.supervisor.contract import Listing, RunningTurn

Row = dict[str, Any]


def listing_row(listing: Listing) -> Row:
    """One conversation: where it is, what it is doing, when it last changed."""
    row = listing.row
    status = run_status(row, listing.live)
    return {
        "path": row.key.path,
        "tenant": row.key.tenant,
        "owner": row.key.owner,
        "conversation": row.key.conversation,
        "agent": row.agent,
        "title": row.title,
        "archived": row.is_archived,
        "state": status.state,
        "failed": row.is_failed,
        "turn": status.turn,
        "waiting": status.waiting,
        "actor": listing.live.state if listing.live else "hibernated",
        "event": row.head.event,
        "seq": row.head.seq,
        "created_us": row.created_us,
        "updated_us": row.updated_us,
        "due_us": row.due_us,
        "quarantine": row.quarantine,
        "quarantine_kind": row.quarantine_kind,
        "quarantined_us": row.quarantined_us,
        "quarantine_seq": row.quarantine_seq,
    }


def job_row(job: StoredJob) -> Row:
    """One job: what it is, how it is doing, when it is due."""
    return {
        "path": f"{job.key.path}/{job.id}",
        "conversation": job.key.path,
        "id": job.id,
        "kind": job.kind,
        "state": job.state.value,
        "attempts": job.attempts,
        "added_us": job.added_us,
        "due_us": job.due_us,
        "error": job.error,
    }


def turn_row(turn: RunningTurn) -> Row:
    """A turn that runs, and the step of it that is under way."""
    return {
        "path": turn.key.path,
        "agent": turn.agent,
        "turn": turn.turn,
        "began_us": turn.began_us,
        "step": turn.step,
        "of": turn.of,
        "step_began_us": turn.step_began_us,
        "waiting": turn.waiting,
    }


def room_row(room: str, statistics: msgspec.Struct) -> Row:
    """The numbers of one part."""
    told = {name: _plain(value) for name, value in msgspec.structs.asdict(statistics).items()}
    return {"room": room, **told}


def record_row(record: JournalRecord) -> Row:
    """A record as it stands in the journal."""
    row: Row = msgspec.json.decode(msgspec.json.encode(record))
    return row


def event_row(record: JournalRecord) -> Row:
    """A public record as the event that clients are shown."""
    row: Row = msgspec.json.decode(msgspec.json.encode(event_of(record)))
    return row


def _plain(value: Any) -> Any:
    """As JSON has it, where a number goes by several words as well."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else " ".join(key): each for key, each in value.items()}
    return value


def fitting(rows: Iterable[Row], *, size_bytes: int) -> tuple[Row, ...]:
    """The first rows whose JSON is at most ``size_bytes`` together, and always the first."""
    taken: list[Row] = []
    total_bytes = 0
    for row in rows:
        total_bytes += len(msgspec.json.encode(row))
        if taken and total_bytes > size_bytes:
            break
        taken.append(row)
    return tuple(taken)
