"""What every store does with most writes: make a request of them, and hand it to its writer.

Above: the stores, which add the rest of ``store.contract.Store``.
"""

from collections.abc import Mapping, Sequence

from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord
from torpor.store.codec import number_batch
from torpor.store.contract import Head, Job, Lease, QuarantineKind, Snapshot, Ticket, Timer
from torpor.store.requests import Append, AskHead, PutSnapshot, Quarantine, beginning
from torpor.store.writer import Writer, ask_head


class Writes:
    """The methods of a store that write, as its contract has them."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def append(
        self,
        key: ConversationKey,
        *,
        fence: int,
        expected_seq: int,
        batch_id: str,
        records: Sequence[JournalRecord],
        dedupe: Mapping[MessageId, Receipt],
        due_us: int | None,
        jobs: Sequence[Job] = (),
        timers: Sequence[Timer] = (),
    ) -> Ticket:
        return self._writer.submit(
            Append(
                key=key,
                fence=fence,
                numbers=number_batch(key, records, expected_seq=expected_seq),
                batch_id=batch_id,
                records=records,
                dedupe=dedupe,
                due_us=due_us,
                jobs=jobs,
                timers=timers,
            )
        )

    async def begin(
        self,
        lease: Lease,
        *,
        records: Sequence[JournalRecord],
        batch_id: str,
        dedupe: Mapping[MessageId, Receipt],
    ) -> None:
        request = beginning(lease.key, records, fence=lease.fence, batch_id=batch_id, dedupe=dedupe)
        await self._writer.submit(request).wait()

    async def head(self, key: ConversationKey) -> Head:
        return await ask_head(self._writer, AskHead(key=key))

    async def put_snapshot(self, key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        await self._writer.submit(PutSnapshot(key=key, fence=fence, snapshot=snapshot)).wait()

    async def quarantine(
        self,
        key: ConversationKey,
        *,
        reason: str,
        kind: QuarantineKind = QuarantineKind.OPERATOR,
        at_us: int = 0,
    ) -> None:
        await self._writer.submit(Quarantine(key=key, reason=reason, kind=kind.value, at_us=at_us)).wait()
