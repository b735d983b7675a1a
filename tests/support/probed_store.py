"""The in-memory store with a window and a lever: what is written can be counted, held back and made to fail."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import anyio

from torpor.errors import TorporError
from torpor.records.commands import Receipt
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import JournalRecord, ModelRequested
from torpor.store.contract import Job, Loaded, Snapshot, Ticket, Timer
from torpor.store.in_memory import InMemoryStore
from torpor.store.memory_data import MemoryCore, MemoryData
from torpor.store.requests import Append, CommitCore, Outcome, PutSnapshot, Request


class _Fault(NamedTuple):
    error: TorporError
    applied: bool
    hits: Callable[[Request], bool]


def any_append(request: Request) -> bool:
    return isinstance(request, Append)


def any_snapshot(request: Request) -> bool:
    return isinstance(request, PutSnapshot)


def append_of(kind: type[JournalRecord]) -> Callable[[Request], bool]:
    """Appends that hold a record of this kind."""
    return lambda request: isinstance(request, Append) and any(isinstance(record, kind) for record in request.records)


class FaultyCore:
    """Implements ``store.requests.CommitCore``; each fault hits one request and is spent."""

    def __init__(self, core: CommitCore) -> None:
        self._core = core
        self._faults: list[_Fault] = []
        self.requested: set[str] = set()
        """Model calls whose request is durable."""

    def fail(
        self, error: TorporError, *, applied: bool = False, hits: Callable[[Request], bool] = any_append, times: int = 1
    ) -> None:
        """Answer the next request that ``hits`` with ``error``, though it was carried out if it is ``applied``."""
        self._faults.extend([_Fault(error, applied, hits)] * times)

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        return [self._carried_out(request) for request in requests]

    def _carried_out(self, request: Request) -> Outcome:
        fault = next((fault for fault in self._faults if fault.hits(request)), None)
        if fault is not None:
            self._faults.remove(fault)
            if not fault.applied:
                return fault.error
        (outcome,) = self._core.commit([request])
        if isinstance(request, Append) and not isinstance(outcome, TorporError):
            self.requested.update(record.call for record in request.records if isinstance(record, ModelRequested))
        return fault.error if fault else outcome


class _HeldTicket:
    """Implements ``store.contract.Ticket`` for an append that was not handed over yet."""

    def __init__(self, hand_over: Callable[[], Ticket]) -> None:
        self._hand_over = hand_over
        self._ticket: Ticket | None = None
        self._let_go = anyio.Event()

    def let_go(self) -> None:
        self._ticket = self._hand_over()
        self._let_go.set()

    async def wait(self) -> None:
        await self._let_go.wait()
        assert self._ticket is not None
        await self._ticket.wait()


class ProbedStore(InMemoryStore):
    """See the module docstring."""

    def __init__(self, data: MemoryData) -> None:
        self.core = FaultyCore(MemoryCore(data))
        super().__init__(data, core=self.core)
        self.data = data
        self.appends: list[tuple[JournalRecord, ...]] = []
        """What was handed over, append by append."""
        self.due_marks: list[int | None] = []
        self.snapshots: list[Snapshot] = []
        self.loads = 0
        self.held: list[_HeldTicket] = []
        self._is_holding = False
        self._was_held = anyio.Event()

    def image(self) -> MemoryData:
        """What a power cut at this moment would leave."""
        return copy.deepcopy(self.data)

    def hold(self) -> None:
        """Keep back every append from now on."""
        self._is_holding = True
        self._was_held = anyio.Event()

    async def holds_one(self) -> None:
        """Wait until an append is kept back."""
        with anyio.fail_after(5):
            await self._was_held.wait()

    def let_go(self) -> None:
        """Hand over what was kept back, and keep nothing back any more."""
        self._is_holding = False
        held, self.held = self.held, []
        for ticket in held:
            ticket.let_go()

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
        self.appends.append(tuple(records))
        self.due_marks.append(due_us)

        def hand_over() -> Ticket:
            return super(ProbedStore, self).append(
                key,
                fence=fence,
                expected_seq=expected_seq,
                batch_id=batch_id,
                records=records,
                dedupe=dedupe,
                due_us=due_us,
                jobs=jobs,
                timers=timers,
            )

        if not self._is_holding:
            return hand_over()
        held = _HeldTicket(hand_over)
        self.held.append(held)
        self._was_held.set()
        return held

    async def load(self, key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
        self.loads += 1
        return await super().load(key, use_snapshot=use_snapshot)

    async def put_snapshot(self, key: ConversationKey, *, fence: int, snapshot: Snapshot) -> None:
        await super().put_snapshot(key, fence=fence, snapshot=snapshot)
        self.snapshots.append(snapshot)
