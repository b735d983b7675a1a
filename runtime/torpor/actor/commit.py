"""The one write path of a conversation: fold ahead, append, publish.

``add`` numbers and folds at once; nothing of it is durable before the append that carries it. At most one append is in
flight; what it cannot hold goes with the next. When it lands, its public records are published and the effects that
waited for it run, in that order. When it fails, everything folded ahead is worthless: the journal is broken from then
on and the actor reloads or stops.
"""

from collections.abc import Callable, Sequence

import structlog

from torpor.bus.contract import Bus
from torpor.clock import Clock, IdSource
from torpor.conversation.fold import fold
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Lane, Rest, StepOptions, next_step
from torpor.errors import Fenced, InvariantBroken, StoreError, StoreUnavailable, WrongSequence
from torpor.records.commands import Receipt
from torpor.records.ids import JOB_ID, ConversationKey, MessageId
from torpor.records.journal import (
    FOLD_CUT,
    PUBLIC_RECORDS,
    CompactionFailed,
    JournalRecord,
    MessageReceived,
    TurnFailed,
)
from torpor.store.codec import MAX_BATCH_RECORDS
from torpor.store.contract import Job, Lease, Store, Ticket
from torpor.turn.contract import UNOBSERVED, Observer

_log = structlog.get_logger()


class _Flight:
    """One append on its way."""

    __slots__ = ("batch_id", "has_jobs", "public", "seq", "ticket")

    def __init__(
        self, ticket: Ticket, *, batch_id: str, seq: int, public: tuple[JournalRecord, ...], has_jobs: bool
    ) -> None:
        self.ticket = ticket
        self.batch_id = batch_id
        self.seq = seq
        self.public = public
        self.has_jobs = has_jobs


class Journal:
    """Implements ``turn.contract.Journal``; see the module docstring."""

    __slots__ = (
        "_broken",
        "_buffer",
        "_bus",
        "_clock",
        "_dedupe",
        "_due_us",
        "_durable_seq",
        "_effects",
        "_flight",
        "_handed_seq",
        "_ids",
        "_jobs",
        "_jobs_added",
        "_key",
        "_lease",
        "_loaded_seq",
        "_observer",
        "_state",
        "_steps",
        "_store",
    )

    def __init__(
        self,
        key: ConversationKey,
        state: ConversationState,
        *,
        lease: Lease,
        store: Store,
        bus: Bus,
        clock: Clock,
        ids: IdSource,
        steps: StepOptions,
        jobs_added: Callable[[], None] = lambda: None,
        observer: Observer = UNOBSERVED,
    ) -> None:
        """Args: jobs_added: is told when jobs have become durable."""
        self._key = key
        self._state = state
        self._lease = lease
        self._store = store
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._steps = steps
        self._jobs_added = jobs_added
        self._observer = observer
        self._durable_seq = self._handed_seq = self._loaded_seq = state.seq
        self._buffer: list[JournalRecord] = []
        self._dedupe: dict[MessageId, Receipt] = {}
        self._effects: list[tuple[int, Callable[[], None]]] = []
        self._jobs: list[tuple[int, Job]] = []
        self._due_us: int | None = None
        self._flight: _Flight | None = None
        self._broken: StoreError | None = None

    @property
    def state(self) -> ConversationState:
        return self._state

    @property
    def has_committed(self) -> bool:
        """Whether anything became durable since the conversation was loaded."""
        return self._durable_seq > self._loaded_seq

    @property
    def lease(self) -> Lease:
        return self._lease

    @property
    def fenced(self) -> Fenced | None:
        """Why nothing of it can be written any more, once somebody else holds the conversation."""
        return self._broken if isinstance(self._broken, Fenced) else None

    def leave_to(self, fenced: Fenced) -> None:
        """Hand nothing over any more: another journal under the same lease has learnt that it is lost."""
        self._broken = self._broken or fenced

    def replace_view(self, state: ConversationState) -> None:
        """Take an equal state that is held more cheaply."""
        self._state = state

    def add(self, *drafts: JournalRecord) -> None:
        if drafts:
            records = numbered(self._state, drafts, at_us=self._clock.now_us())
            self._state = fold(self._state, records)
            self._buffer.extend(records)

    @property
    def added_us(self) -> int:
        """When what was added last happened; to be asked before anything is waited for."""
        return self._buffer[-1].at_us

    def add_job(self, job: Job) -> None:
        if not JOB_ID.fullmatch(job.id):
            raise InvariantBroken(f"job {job.id!r} has no usable id, expected 1..128 letters, digits or any of '_.:-'")
        self._jobs.append((self._state.seq, job))

    def remember(self, receipt: Receipt) -> None:
        """Enter ``receipt`` into the index together with the records added last."""
        self._dedupe[receipt.message_id] = receipt

    def pending_receipt(self, message_id: MessageId) -> Receipt | None:
        """The receipt of a message that is not durable yet."""
        return self._dedupe.get(message_id)

    def after_commit(self, effect: Callable[[], None]) -> None:
        if self._durable_seq >= self._state.seq:
            effect()
        else:
            self._effects.append((self._state.seq, effect))

    async def submit(self) -> None:
        target = self._state.seq
        while self._handed_seq < target:
            if self._flight is not None:
                await self._land(self._flight)
            else:
                self._hand_over()
        self._check()

    async def flush(self) -> None:
        target = self._state.seq
        await self.submit()
        while self._durable_seq < target and self._flight is not None:
            await self._land(self._flight)
        self._check()

    def _check(self) -> None:
        if self._broken is not None:
            raise self._broken

    def _hand_over(self) -> None:
        self._check()
        now_us = self._clock.now_us()
        records, self._buffer = self._buffer[:MAX_BATCH_RECORDS], self._buffer[MAX_BATCH_RECORDS:]
        # A sub-agent is never woken: the conversation that it works for begins with another one instead.
        at_rest = self._key.is_child or (
            not self._buffer and isinstance(next_step(self._state, Lane.TURN, self._steps, now_us), Rest)
        )
        # The mark stays as it is while it stands: a store rewrites its index only when it changes.
        self._due_us = None if at_rest else self._due_us or now_us
        later = self._messages_waiting()
        jobs = [job for seq, job in self._jobs if seq <= records[-1].seq]
        del self._jobs[: len(jobs)]
        batch_id = self._ids.new_id()
        ticket = self._store.append(
            self._key,
            fence=self._lease.fence,
            expected_seq=records[0].seq - 1,
            batch_id=batch_id,
            records=records,
            dedupe={id_: receipt for id_, receipt in self._dedupe.items() if id_ not in later},
            due_us=self._due_us,
            jobs=jobs,
        )
        self._handed_seq = records[-1].seq
        public = tuple(record for record in records if isinstance(record, PUBLIC_RECORDS))
        self._flight = _Flight(ticket, batch_id=batch_id, seq=self._handed_seq, public=public, has_jobs=bool(jobs))

    async def _land(self, flight: _Flight) -> None:
        """Wait until ``flight`` is durable; whoever wakes first publishes it."""
        try:
            await flight.ticket.wait()
        except (StoreUnavailable, WrongSequence) as exc:
            # Whoever looks second may find the append after this one.
            if not await self._is_durable(flight, exc) and self._flight is flight:
                self._broken = exc
                raise
        except StoreError as exc:
            self._broken = exc
            raise
        if self._flight is flight:
            self._landed(flight)

    def _landed(self, flight: _Flight) -> None:
        self._flight = None
        self._durable_seq = flight.seq
        self._forget_receipts()
        if flight.public:
            self._bus.publish(self._key, flight.public)
            self._observer.committed(self._key, flight.public, agent=self._state.agent)
            self._log_failures(flight.public)
        if flight.has_jobs:
            self._jobs_added()
        if self._effects:
            due = [effect for seq, effect in self._effects if seq <= flight.seq]
            self._effects = [(seq, effect) for seq, effect in self._effects if seq > flight.seq]
            for effect in due:
                effect()

    def _log_failures(self, records: Sequence[JournalRecord]) -> None:
        """One line for each turn or summary that failed, whatever ended it; the detail may hold words of the
        conversation."""
        for record in records:
            if isinstance(record, CompactionFailed) and record.code != FOLD_CUT:
                _log.warning(
                    "compaction.failed",
                    conversation=self._key.path,
                    agent=self._state.agent,
                    turn=record.turn,
                    code=record.code,
                    left_alone_s=max(record.left_alone_until_us - record.at_us, 0) // 1_000_000,
                )
            if isinstance(record, TurnFailed):
                _log.warning(
                    "turn.failed",
                    conversation=self._key.path,
                    agent=self._state.agent,
                    turn=record.turn,
                    code=record.code,
                )

    def _forget_receipts(self) -> None:
        """Receipts that are durable are answered from the index."""
        if not self._dedupe:
            return
        waiting = self._messages_waiting()
        self._dedupe = {id_: receipt for id_, receipt in self._dedupe.items() if id_ in waiting}

    def _messages_waiting(self) -> set[MessageId]:
        """Messages that no append has been handed yet."""
        return {record.message_id for record in self._buffer if isinstance(record, MessageReceived)}

    async def _is_durable(self, flight: _Flight, error: StoreError) -> bool:
        """Settle a lost reply: the head names the batch that was written last."""
        head = await self._store.head(self._key)
        found = head.batch_id == flight.batch_id
        _log.warning("commit.reconciled", conversation=self._key.path, durable=found, cause=error.code)
        return found
