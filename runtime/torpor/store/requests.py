"""What a store's one writer is asked to do, as values, and how it answers.

Above: the stores, which make requests out of calls. Below: each backend's *commit core*, which carries them out in
order, synchronously, and knows neither threads nor an event loop; a driver (``writer``, ``sqlite.writer_thread``)
stands between. Tests put their faults around a core.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from torpor.errors import TorporError
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.codec import MAX_BATCH_RECORDS, BatchNumbers, number_batch
from torpor.store.contract import Erased, Head, Job, Lease, Snapshot, Timer
from torpor.store.job_contract import JobState


class Append(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """See ``Store.append``; answered by None."""

    key: ConversationKey
    fence: int
    numbers: BatchNumbers
    batch_id: str
    records: Sequence[JournalRecord]
    dedupe: Mapping[MessageId, Receipt]
    due_us: int | None
    jobs: Sequence[Job]
    timers: Sequence[Timer]


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.begin``; answered by None."""

    key: ConversationKey
    fence: int
    appends: Sequence[Append]
    """In order, from the first record on."""


def beginning(
    key: ConversationKey,
    records: Sequence[JournalRecord],
    *,
    fence: int,
    batch_id: str,
    dedupe: Mapping[MessageId, Receipt],
) -> Begin:
    """The batches of a conversation that begins with ``records``; the receipts go with the first one."""
    appends = [
        Append(
            key=key,
            fence=fence,
            numbers=number_batch(key, records[start : start + MAX_BATCH_RECORDS], expected_seq=start),
            batch_id=f"{batch_id}-{start}",
            records=records[start : start + MAX_BATCH_RECORDS],
            dedupe={} if start else dedupe,
            due_us=None,
            jobs=(),
            timers=(),
        )
        for start in range(0, len(records), MAX_BATCH_RECORDS)
    ]
    return Begin(key=key, fence=fence, appends=appends)


class PutSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.put_snapshot``; answered by None."""

    key: ConversationKey
    fence: int
    snapshot: Snapshot


class Quarantine(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.quarantine``; answered by None."""

    key: ConversationKey
    reason: str
    kind: str = ""
    at_us: int = 0


class AskHead(msgspec.Struct, frozen=True, kw_only=True):
    """Answered by the head, behind every request before it."""

    key: ConversationKey


class Acquire(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.acquire``; answered by the lease."""

    key: ConversationKey
    holder: str
    ttl_us: int
    now_us: int


class Renew(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.renew``; answered by the lease."""

    lease: Lease
    ttl_us: int
    now_us: int


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.release``; answered by None."""

    lease: Lease


class ClaimJob(msgspec.Struct, frozen=True, kw_only=True):
    """See ``JobStore.claim_job``; answered by None."""

    key: ConversationKey
    id: str
    token: int
    """Of the job as it was found."""
    fence: int
    """Of the process, where it has one."""
    holder: str
    until_us: int
    now_us: int


class SettleJob(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a claim; answered by None."""

    key: ConversationKey
    id: str
    token: int
    """Of the claim."""
    fence: int
    state: JobState | None
    """What becomes of it; None removes it."""
    due_us: int | None = None
    """None leaves it as it is."""
    error: str | None = None
    """None leaves it as it is."""
    counts: bool = True
    """Whether the attempt does."""


class RedoJob(msgspec.Struct, frozen=True, kw_only=True):
    """See ``JobStore.redo_job``; answered by None."""

    key: ConversationKey
    id: str
    now_us: int


class DropJob(msgspec.Struct, frozen=True, kw_only=True):
    """See ``JobStore.drop_job``; answered by None."""

    key: ConversationKey
    id: str
    now_us: int


class HastenJobs(msgspec.Struct, frozen=True, kw_only=True):
    """See ``JobStore.hasten_jobs``; answered by whether there were any."""

    now_us: int
    beyond_us: int


class Erase(msgspec.Struct, frozen=True, kw_only=True):
    """See ``Store.erase``; answered by what was erased."""

    key: ConversationKey
    fence: int
    cause: str
    at_us: int


class Tidy(msgspec.Struct, frozen=True, kw_only=True):
    """Give back what space the medium can, and with it what was erased; answered by whether nothing hindered it."""


JobRequest: TypeAlias = ClaimJob | SettleJob | RedoJob | DropJob
Request: TypeAlias = (
    Append
    | Begin
    | PutSnapshot
    | Quarantine
    | AskHead
    | Acquire
    | Renew
    | Release
    | JobRequest
    | HastenJobs
    | Erase
    | Tidy
)
Outcome: TypeAlias = Head | Lease | Erased | bool | TorporError | None
"""An answer, or why there is none."""


class CommitCore(Protocol):
    """Carries out requests, in order."""

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        """One outcome per request, durable when this returns.

        A request that is refused changes nothing and does not touch its neighbours. Never raises a ``StoreError``.
        """
        ...
