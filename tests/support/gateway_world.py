"""A world for the gateway to show: journals, a bus and a supervisor's port, all of them obedient to the test.

Nothing happens in it by itself, except that a message is journaled when it is posted. Journals are lists of records;
a read can be held open, so that a test can do something in the middle of it.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import anyio
import msgspec

from torpor.bus.local import LocalBus
from torpor.errors import ClientError, JobIsRunning, NothingToCancel, UnknownConversation, UnknownJob
from torpor.records.blocks import text_block
from torpor.records.commands import CancelTurn, Command, Receipt, SendMessage
from torpor.records.events import Delta
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import (
    PUBLIC_RECORDS,
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    SubagentFinished,
    TurnCancelled,
    TurnFinished,
    TurnPrepared,
)
from torpor.store.contract import DirectoryRow, Head, QuarantineKind
from torpor.store.job_contract import JobCounts, JobState, StoredJob
from torpor.supervisor.contract import Answer, Draining, Forgotten, Listing, LiveStatus, RunningTurn
from torpor.supervisor.forking import ForkConversation


async def _at_once() -> None:
    await anyio.lowlevel.checkpoint()


class Durable:
    """An event that can also call."""

    def __init__(self) -> None:
        self._event = anyio.Event()
        self.listeners: list[Callable[[], None]] = []

    async def wait(self) -> None:
        await self._event.wait()

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        self._event.set()
        listeners, self.listeners = self.listeners, []
        for tell in listeners:
            tell()


class PostedReply:
    """Implements ``supervisor.contract.Reply``."""

    def __init__(self, answer: Answer | Exception, *, durable: Durable | None) -> None:
        self._answer = answer
        self._durable = durable

    async def wait(self) -> Answer:
        if self._durable is not None:
            await self._durable.wait()
        return self.result()

    def when_done(self, tell: Callable[[], None]) -> None:
        if self._durable is None or self._durable.is_set():
            tell()
        else:
            self._durable.listeners.append(tell)

    def result(self) -> Answer:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class FiledJobs:
    """Implements ``gateway.status.Jobs``."""

    def __init__(self) -> None:
        self.by_place: dict[tuple[ConversationKey, str], StoredJob] = {}
        self.redone: list[str] = []
        self.counts = JobCounts()

    def file(self, key: ConversationKey, name: str, **fields: Any) -> None:
        self.by_place[key, name] = StoredJob(key=key, id=name, kind="refresh", due_us=2_000, added_us=1_000, **fields)

    async def listed(
        self, *, state: JobState | None = None, limit: int, after: tuple[ConversationKey, str] | None = None
    ) -> tuple[StoredJob, ...]:
        await _at_once()
        places = [place for place in sorted(self.by_place) if after is None or place > after]
        return tuple(self.by_place[place] for place in places if state in {None, self.by_place[place].state})[:limit]

    async def counted(self) -> JobCounts:
        await _at_once()
        return self.counts

    async def redo(self, key: ConversationKey, job_id: str) -> None:
        await self._found(key, job_id)
        self.redone.append(job_id)

    async def drop(self, key: ConversationKey, job_id: str) -> None:
        await self._found(key, job_id)
        del self.by_place[key, job_id]

    async def _found(self, key: ConversationKey, job_id: str) -> None:
        await _at_once()
        if (job := self.by_place.get((key, job_id))) is None:
            raise UnknownJob(f"{key.path}/{job_id}")
        if job.state is JobState.RUNNING:
            raise JobIsRunning(f"{key.path}/{job_id}", retry_after_s=1.0)


class Numbers(msgspec.Struct, frozen=True, kw_only=True):
    """Of a part."""

    running: int
    by_name: Mapping[str, int]
    by_two: Mapping[tuple[str, str], int]


class WatchedServer:
    """Implements ``gateway.status.Operated``: nothing of it ends."""

    def __init__(self, turns: Callable[[], tuple[RunningTurn, ...]] = lambda: ()) -> None:
        self.turns = turns
        self.drained: list[float | None] = []
        """The deadlines that were given."""

    async def statistics(self) -> Mapping[str, msgspec.Struct]:
        await _at_once()
        numbers = Numbers(running=3, by_name={"a": 1}, by_two={("host", "open"): 1})
        return {"parts": numbers, "jobs": msgspec.structs.replace(numbers, running=0)}

    def mcp(self) -> tuple[msgspec.Struct, ...]:
        return (Numbers(running=1, by_name={"lib": 1}, by_two={}),)

    def drain(self, *, deadline_s: float | None) -> Draining:
        self.drained.append(deadline_s)
        return Draining(draining=True, turns=2, jobs=1, ends_us=5_000)


def _up_to(records: Sequence[JournalRecord], *, size_bytes: int) -> Iterator[JournalRecord]:
    """The first of them, up to the one that makes them so long together."""
    for record in records:
        yield record
        size_bytes -= len(msgspec.json.encode(record))
        if size_bytes <= 0:
            return


class World:
    """Implements ``Conversations``, ``Directory``, ``Journals`` and ``Bundles``; holds the ``LocalBus`` beside them."""

    def __init__(self) -> None:
        self.bus = LocalBus()
        self.jobs = FiledJobs()
        self.server = WatchedServer()
        self.journals: dict[ConversationKey, list[JournalRecord]] = defaultdict(list)
        self.live: dict[ConversationKey, LiveStatus] = {}
        self.at_us = 1_780_000_000_000_000
        """When what is committed happens: at the start of a ``ManualClock``."""
        self.due: set[ConversationKey] = set()
        self.quarantined: dict[ConversationKey, str] = {}
        self.archived: set[ConversationKey] = set()
        self.epochs: dict[ConversationKey, int] = {}
        self.next_epoch = 1
        self.forked: list[ForkConversation] = []
        self.posted: list[tuple[ConversationKey, Command]] = []
        self.bundles: dict[str, bytes] = {}
        """By handle, whoever's they are."""
        self.receipts: dict[tuple[ConversationKey, MessageId], Receipt] = {}
        self.before_read: Callable[[], Awaitable[None]] = _at_once
        """Awaited inside every read, before it looks."""
        self.after_read: Callable[[], Awaitable[None]] = _at_once
        """Awaited inside every read, after it looked."""
        self.durable: Durable | None = None
        """When given, replies wait for it."""
        self.refusals: list[Exception] = []
        """Raised by the next posts, one each."""
        self.failures: list[Exception] = []
        """What the next posts are answered with, one each, instead of being carried out."""
        self.answers: dict[type[Command], Answer | ClientError] = {}
        """What other commands than messages and cancels are answered with; True otherwise."""
        self.unreadable: Exception | None = None
        """Raised by every read of events and records."""
        self.on_message: Callable[[ConversationKey, MessageReceived], None] = lambda key, message: None

    # What a test does.

    def commit(self, key: ConversationKey, *records: JournalRecord, publish: bool = True) -> tuple[JournalRecord, ...]:
        """Number and journal the records, and tell the bus of those that are public."""
        journal = self.journals[key]
        self.epochs.setdefault(key, self.next_epoch)
        numbered = []
        for record in records:
            is_public = isinstance(record, PUBLIC_RECORDS)
            event = self.head(key) + 1 if is_public else 0
            numbered.append(msgspec.structs.replace(record, seq=len(journal) + 1, event=event, at_us=self.at_us))
            journal.append(numbered[-1])
        if publish:
            self.publish(key, *numbered)
        return tuple(numbered)

    def publish(self, key: ConversationKey, *records: JournalRecord) -> None:
        self.bus.publish(key, [record for record in records if record.event])

    def head(self, key: ConversationKey) -> int:
        return next((record.event for record in reversed(self.journals[key]) if record.event), 0)

    def say(self, key: ConversationKey, call: str, *, offset: int, text: str) -> None:
        self.bus.publish_delta(key, Delta(call=call, offset=offset, text=text))

    def converse(self, key: ConversationKey, *, turns: int) -> None:
        """Journal that many short turns, four events each."""
        for number in range(self.head(key) // 4, self.head(key) // 4 + turns):
            message_id = MessageId(f"m{number}")
            self.commit(
                key,
                MessageReceived(message_id=message_id, principal="alice", blocks=(text_block(f"question {number}"),)),
                TurnPrepared(messages=(message_id,), turn=number + 1),
                replied(f"call{number}", f"answer {number}", turn=number + 1),
                TurnFinished(turn=number + 1),
            )

    # Conversations.

    def post(self, key: ConversationKey, command: Command) -> PostedReply:
        if self.refusals:
            raise self.refusals.pop(0)
        self.posted.append((key, command))
        answer = self.failures.pop(0) if self.failures else self._carry_out(key, command)
        return PostedReply(answer, durable=self.durable)

    async def deliver(self, key: ConversationKey, command: Command) -> Answer:
        return await self.post(key, command).wait()

    async def quarantine(
        self, key: ConversationKey, *, reason: str, kind: QuarantineKind = QuarantineKind.OPERATOR
    ) -> None:
        await _at_once()
        self.live.pop(key, None)
        self.quarantined[key] = reason
        self.bus.publish_standing(key)

    async def release(self, key: ConversationKey) -> None:
        await _at_once()
        self.quarantined.pop(key, None)
        self.bus.publish_standing(key)

    async def fork(self, fork: ForkConversation) -> None:
        await _at_once()
        if not self.journals.get(fork.source):
            raise UnknownConversation(fork.source.conversation)
        self.forked.append(fork)

    async def delete(self, key: ConversationKey, *, principal: str) -> None:
        await _at_once()
        await self.begin_delete(key, principal=principal).wait()

    def begin_delete(self, key: ConversationKey, *, principal: str) -> PostedReply:
        if not self.journals.pop(key, None):
            return PostedReply(UnknownConversation(key.conversation), durable=None)
        self.live.pop(key, None)
        self.epochs.pop(key, None)
        self.next_epoch += 1
        self.bus.publish_gone(key)
        return PostedReply(True, durable=None)

    async def forget(self, *, tenant: str, owner: str, limit: int, principal: str) -> Forgotten:
        mine = [key for key in sorted(self.journals) if (key.tenant, key.owner) == (tenant, owner)]
        records = sum(len(self.journals[key]) for key in mine[:limit])
        for key in mine[:limit]:
            await self.delete(key, principal=principal)
        taken = len(mine[:limit])
        return Forgotten(conversations=taken, records=records, blobs=0, left=len(mine) - taken, lingers=False)

    async def survey(self, *, tenant: str, owner: str) -> Forgotten:
        await _at_once()
        mine = [key for key in self.journals if (key.tenant, key.owner) == (tenant, owner)]
        records = sum(len(self.journals[key]) for key in mine)
        return Forgotten(conversations=len(mine), records=records, blobs=0, left=len(mine), lingers=False)

    def live_status(self, key: ConversationKey) -> LiveStatus | None:
        return self.live.get(key)

    async def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[Listing, ...]:
        await self.before_read()
        listings = [
            Listing(row=self._row(key), live=self.live.get(key))
            for key in sorted(self.journals)
            if self.journals[key]
            and (tenant is None or key.tenant == tenant)
            and (owner is None or key.owner == owner)
            and (after is None or key > after)
            and (with_archived or key not in self.archived)
        ]
        return tuple(listings[:limit])

    # Journals.

    async def describe(self, key: ConversationKey) -> DirectoryRow | None:
        await self.before_read()
        row = self._row(key) if self.journals.get(key) else None
        await self.after_read()
        return row

    async def epoch(self) -> int:
        await self.before_read()
        return self.next_epoch

    async def names_blob(self, key: ConversationKey, handle: str) -> bool:
        return await self.names_bundle(key, handle)

    async def names_bundle(self, key: ConversationKey, handle: str) -> bool:
        await self.before_read()
        return any(isinstance(record, SubagentFinished) and record.bundle == handle for record in self.journals[key])

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        await self.before_read()
        return self.bundles.get(handle)

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        return await self._records(key, limit=limit, size_bytes=size_bytes, wanted=lambda record: record.event > event)

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]:
        return await self._records(key, limit=limit, size_bytes=size_bytes, wanted=lambda record: record.seq > seq)

    async def _records(
        self, key: ConversationKey, *, limit: int, size_bytes: int | None, wanted: Callable[[JournalRecord], bool]
    ) -> tuple[JournalRecord, ...]:
        await self.before_read()
        if self.unreadable is not None:
            raise self.unreadable
        found: Sequence[JournalRecord] = [record for record in self.journals.get(key, ()) if wanted(record)][:limit]
        if size_bytes is not None:
            found = list(_up_to(found, size_bytes=size_bytes))
        await self.after_read()
        return tuple(found)

    def _row(self, key: ConversationKey) -> DirectoryRow:
        return DirectoryRow(
            key=key,
            agent="rehearsal",
            title="",
            head=Head(seq=len(self.journals[key]), event=self.head(key)),
            created_us=1_000,
            updated_us=2_000,
            due_us=3_000 if key in self.due else None,
            quarantine=self.quarantined.get(key, ""),
            is_archived=key in self.archived,
            epoch=self.epochs.get(key, 1),
        )

    def _carry_out(self, key: ConversationKey, command: Command) -> Answer | ClientError:
        match command:
            case SendMessage():
                return self._journal_message(key, command)
            case CancelTurn():
                live = self.live.get(key)
                if live is None or live.state != "running":
                    return NothingToCancel()
                self.commit(key, TurnCancelled(turn=live.turn, reason=command.reason, note=text_block("cut")))
                return live.turn
            case _:
                return self.answers.get(type(command), True)

    def _journal_message(self, key: ConversationKey, command: SendMessage) -> Receipt:
        if (receipt := self.receipts.get((key, command.message_id))) is not None:
            return receipt
        if not self.journals[key]:
            self.commit(key, ConversationCreated(agent=command.agent or "rehearsal"))
        message = MessageReceived(
            message_id=command.message_id,
            principal=command.principal,
            blocks=(text_block(command.text),),
            cleaned=command.cleaned,
        )
        (committed,) = self.commit(key, message)
        receipt = Receipt(message_id=command.message_id, event=committed.event, at_us=committed.at_us)
        self.receipts[key, command.message_id] = receipt
        self.on_message(key, message)
        return receipt


def replied(call: str, text: str, *, turn: int = 1) -> ModelReplied:
    """A complete reply of one text block."""
    return ModelReplied(call=call, round=1, blocks=(text_block(text),), stop_reason="end_turn", turn=turn)
