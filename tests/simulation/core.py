"""The commit core of a life: the real one, with luck around it, and a note of everything that became durable."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tests.simulation.faults import Fault, Sight
from tests.simulation.life import Life
from tests.support.oracle_evidence import Commit, Gone, Grant, Journal, Released, SnapshotPut
from torpor.errors import Fenced, LeaseHeld, StoreFull, StoreUnavailable, TorporError, WrongSequence
from torpor.records.ids import CHILD_MARK, ConversationKey
from torpor.records.journal import (
    AttemptStarted,
    ContextReplaced,
    ConversationForked,
    JournalRecord,
    MessageReceived,
    ModelRequested,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnPrepared,
)
from torpor.records.terms import FoldReason
from torpor.records.terms import Outcome as CallOutcome
from torpor.store.contract import Lease
from torpor.store.requests import (
    Acquire,
    Append,
    AskHead,
    Begin,
    ClaimJob,
    CommitCore,
    Erase,
    Outcome,
    PutSnapshot,
    Quarantine,
    Release,
    Renew,
    Request,
    SettleJob,
)


class Kept(NamedTuple):
    """What a medium holds of one conversation."""

    journal: Journal | None
    names: list[str]
    """Of everything that there is."""
    below: list[Journal]
    """Of its sub-agents and theirs."""


class SimCore:
    """Implements ``store.requests.CommitCore`` around the real one."""

    def __init__(
        self,
        core: CommitCore,
        life: Life,
        *,
        holders: Callable[[ConversationKey], tuple[str, int]],
        kept: Callable[[ConversationKey], Kept],
    ) -> None:
        """Args: holders: who holds a conversation, by name and fence; an empty name for nobody.  kept: what there is of
        one."""
        self._core = core
        self._life = life
        self._holders = holders
        self._kept = kept

    def latency_s(self) -> float:
        """How long the next group of writes takes."""
        world = self._life.world
        if world.roll(Fault.STORE_SLOW):
            return world.rng.choice((0.3, 1.0, 1.5 * world.plan.lease_ttl_s))
        return world.rng.choice((0.0, 0.0, 0.002, 0.02)) if world.is_stormy else 0.001

    def commit(self, requests: Sequence[Request]) -> list[Outcome]:
        told = {index: error for index, request in enumerate(requests) if (error := self._refusal(request)) is not None}
        carried = [index for index in range(len(requests)) if index not in told and not self._life.is_dead]
        outcomes: list[Outcome] = [told.get(index) for index in range(len(requests))]
        for group in _grouped(requests, carried):
            self._carry_out(requests, group, outcomes)
        self._life.reach("core.committed")
        return outcomes

    def _carry_out(self, requests: Sequence[Request], group: list[int], outcomes: list[Outcome]) -> None:
        before = [self._holders(_key_of(requests[index])) for index in group]
        erased = self._kept(_key_of(requests[group[0]])) if isinstance(requests[group[0]], Erase) else None
        for index, outcome in zip(group, self._core.commit([requests[index] for index in group]), strict=True):
            outcomes[index] = outcome
        for index, holder in zip(group, before, strict=True):
            self._note(requests[index], outcomes[index], holder)
            if erased is not None and erased.journal is not None and not isinstance(outcomes[index], TorporError):
                self._note_gone(_key_of(requests[index]), erased.journal, below=erased.below)
            if not isinstance(outcomes[index], TorporError):
                outcomes[index] = self._lost_reply(requests[index]) or outcomes[index]

    def _note_gone(self, key: ConversationKey, journal: Journal, *, below: list[Journal]) -> None:
        life, world = self._life, self._life.world
        world.saw(Sight.DELETED)
        world.note(life.name, "gone", conversation=key.conversation, records=journal.rows[-1].last_seq)
        left = self._kept(key).names
        world.evidence.gone.append(Gone(moment=world.moment(), life=life.name, journal=journal, left=left, below=below))

    def _refusal(self, request: Request) -> TorporError | None:
        """Why the request is not carried out."""
        world = self._life.world
        if self._life.is_dead or not self._life.reach("core.commit"):
            return StoreUnavailable("the process has ended")
        match request:
            case PutSnapshot() if world.roll(Fault.SNAPSHOT_REFUSED):
                return StoreFull("no room for a snapshot")
            case Append() | Begin() if world.roll(Fault.STORE_FULL):
                return StoreFull("no room")
            case (
                Append() | Begin() | Erase() | Acquire() | Renew() | Release() | AskHead() | ClaimJob() | SettleJob()
            ) if world.roll(Fault.STORE_UNAVAILABLE):
                return StoreUnavailable("not carried out")
            case _:
                return None

    def _lost_reply(self, request: Request) -> TorporError | None:
        """What is answered instead of success."""
        world = self._life.world
        match request:
            case Append() if world.roll(Fault.STORE_WRONG_SEQUENCE):
                numbers = request.numbers
                return WrongSequence(
                    request.key.path, expected_seq=numbers.expected_seq, head_seq=request.records[-1].seq
                )
            case _ if not isinstance(request, AskHead | Quarantine) and world.roll(Fault.STORE_LOST_REPLY):
                return StoreUnavailable("carried out, reply lost")
            case _:
                return None

    def _note(self, request: Request, outcome: Outcome, holder: tuple[str, int]) -> None:
        life, world = self._life, self._life.world
        evidence, conversation = world.evidence, _key_of(request).conversation
        world.note(life.name, type(request).__name__, outcome=outcome if isinstance(outcome, TorporError) else "ok")
        match request, outcome:
            case Append(), Fenced():
                world.saw(Sight.APPEND_FENCED)
            case PutSnapshot(), Fenced():
                world.saw(Sight.SNAPSHOT_FENCED)
            case Renew(), Fenced():
                world.saw(Sight.RENEWED_TOO_LATE)
            case Acquire(), LeaseHeld():
                world.saw(Sight.LEASE_REFUSED)
            case _, TorporError():
                pass
            case Append(), _:
                for record in request.records:
                    world.counts.update(_met(record))
                    if isinstance(record, SubagentStarted):
                        world.counts[f"child:depth {request.key.conversation.count(CHILD_MARK) + 1}"] += 1
                self._note_append(request, is_due=request.due_us is not None)
            case Begin(), _:
                world.saw(Sight.FORKED)
                for append in request.appends:
                    is_last = append is request.appends[-1]
                    self._note_append(append, is_due=append.due_us is not None if is_last else None)
                world.counts.update(
                    name
                    for record in request.appends[-1].records
                    if isinstance(record, ConversationForked)
                    for name in _met(record)
                )
            case PutSnapshot(), _:
                world.snapshots.append((world.moment(), request.key, request.snapshot))
                evidence.snapshots.append(
                    SnapshotPut(
                        moment=world.moment(),
                        life=life.name,
                        conversation=conversation,
                        fence=request.fence,
                        seq=request.snapshot.seq,
                    )
                )
            case Acquire(), Lease():
                if holder[0] not in {"", request.holder}:
                    world.saw(Sight.LEASE_TAKEN_OVER)
                note_grant(life, outcome)
            case Release(), _ if request.lease.fence == holder[1]:
                note_release(life, request.lease)
            case _:
                pass

    def _note_append(self, request: Append, *, is_due: bool | None) -> None:
        life, world = self._life, self._life.world
        conversation = request.key.conversation
        if request.records[0].seq == 1 and any(
            gone.journal.conversation == conversation for gone in world.evidence.gone
        ):
            world.saw(Sight.BEGUN_AGAIN)
        world.evidence.commits.append(
            Commit(
                moment=world.moment(),
                life=life.name,
                conversation=conversation,
                fence=request.fence,
                first_seq=request.records[0].seq,
                last_seq=request.records[-1].seq,
                is_due=is_due,
                bytes_per_token=life.bytes_per_token(),
            )
        )
        world.note(life.name, "durable", records=[_brief(record) for record in request.records])


def _grouped(requests: Sequence[Request], carried: list[int]) -> Iterator[list[int]]:
    """Those that are carried out together; an erasure goes alone, so that it is seen what it takes away."""
    group: list[int] = []
    for index in carried:
        if isinstance(requests[index], Erase):
            if group:
                yield group
            yield [index]
            group = []
        else:
            group.append(index)
    if group:
        yield group


def note_grant(life: Life, lease: Lease) -> None:
    """A lease was given."""
    world = life.world
    world.evidence.grants.append(
        Grant(moment=world.moment(), life=life.name, conversation=lease.key.conversation, fence=lease.fence)
    )


def note_release(life: Life, lease: Lease) -> None:
    """A lease was given back by whoever held it."""
    world = life.world
    world.saw(Sight.HIBERNATED)
    world.evidence.released.append(
        Released(moment=world.moment(), life=life.name, conversation=lease.key.conversation, fence=lease.fence)
    )


def _key_of(request: Request) -> ConversationKey:
    match request:
        case Renew() | Release():
            return request.lease.key
        case Append() | PutSnapshot() | Acquire() | AskHead():
            return request.key
        case _:
            return getattr(request, "key", ConversationKey("", "", ""))


def _met(record: JournalRecord) -> Iterator[str]:
    """What a committed record counts for."""
    yield f"record:{record.__struct_config__.tag}"
    match record:
        case ToolFinished():
            yield f"outcome:{record.outcome}"
            said = bytes(record.block)
            if record.name == "read_earlier" and record.outcome is CallOutcome.SUCCEEDED:
                yield f"sight:{Sight.EARLIER_READ}"
            yield from (f"sight:{sight}" for words, sight in _TOLD.items() if words in said)
        case TurnPrepared():
            told = (record.signal, Sight.CONTEXT_SHOWN), (record.withheld, Sight.CONTEXT_WITHHELD)
            yield from (f"sight:{sight}" for what, sight in (*told, (record.turn_only, Sight.POLICY_SHOWN)) if what)
            if record.lookback:
                yield f"sight:{Sight.EARLIER_QUOTED}"
        case ModelRequested() if record.live:
            yield f"sight:{Sight.LIVE_CONTEXT_SENT}"
        case ContextReplaced(reason=FoldReason.WITHDRAWN):
            yield f"withdrawn:{record.why}"
        case ContextReplaced():
            yield f"sight:{_FOLDED[record.reason]}"
            done = (record.generation > 1, Sight.SUMMARY_FOLDED), (record.closed, Sight.ITEM_CLOSED)
            yield from (f"sight:{sight}" for what, sight in (*done, (record.skills, Sight.SKILL_CARRIED)) if what)
        case AttemptStarted():
            yield f"attempt:{record.step}"
        case MessageReceived():
            yield f"when_busy:{record.when_busy}"
        case TurnCancelled():
            yield f"cancelled:{record.reason}"
        case TurnFailed():
            yield f"failed:{record.code}"
        case SubagentFinished():
            yield f"child:{record.code or 'answered'}"
            if record.dropped:
                yield "child:dropped"
        case _:
            pass


_FOLDED = {
    FoldReason.SUMMARY: Sight.TURNS_FOLDED,
    FoldReason.MECHANICAL: Sight.FOLDED_WITHOUT_MODEL,
    FoldReason.SHORTENED: Sight.RESULTS_SHORTENED,
    FoldReason.EVERYTHING: Sight.ALL_FOLDED,
}
_TOLD = {
    b"is switched off": Sight.TOOL_OFF,
    b"is no longer there. Nothing": Sight.TOOL_GONE,
    b"that the skills in use": Sight.TOOL_NOT_ALLOWED,
    b"is already loaded": Sight.SKILL_KNOWN,
    b"is available, expected one as it is listed": Sight.SKILL_UNAVAILABLE,
    b": About ": Sight.SKILL_FOUND,
}
"""What results say, by some of their words."""


def _brief(record: JournalRecord) -> str:
    return f"{record.seq}:{record.__struct_config__.tag}/t{record.turn}"
