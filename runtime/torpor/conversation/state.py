"""What a conversation is at one moment: the values that ``fold`` makes of its journal.

A round is one model reply with the calls it asked for. Until it closes it lives in the turn; it enters the view
whole, reply and results together, so half a pair cannot be expressed.
"""

from enum import StrEnum
from typing import Final

import msgspec

from torpor.conversation.segments import TurnStart
from torpor.conversation.view import Preamble, View
from torpor.records.blocks import Block
from torpor.records.context import WorkingContext
from torpor.records.ids import NO_MESSAGE, CallId, MessageId
from torpor.records.summary import Item, Summary
from torpor.records.terms import Effect, FoldReason, Offer, Outcome, Usage, WhenBusy
from torpor.records.told import ToldAs


class BadHistory(ValueError):
    """A record cannot follow the records before it."""


class CallStatus(StrEnum):
    """Where a tool call stands."""

    INTENDED = "intended"
    STARTED = "started"
    SETTLED = "settled"


class CallState(msgspec.Struct, frozen=True, kw_only=True):
    """One tool call: a single thing with a state, never two messages."""

    id: CallId
    name: str
    arguments: msgspec.Raw
    status: CallStatus = CallStatus.INTENDED
    effect: Effect = Effect.WRITE
    idempotency_key: str = ""
    outcome: Outcome | None = None
    result: Block | None = None
    unusable: str = ""
    """Why its arguments cannot be used; such a call never runs."""


class QueuedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted, not yet taken by a turn."""

    id: MessageId
    principal: str
    blocks: tuple[Block, ...]
    when_busy: WhenBusy
    lookback: int = 0
    """Exchanges that are quoted when it begins a turn."""


class LoadedSkill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill whose text stands in the view."""

    key: str
    digest: str
    allowed_tools: tuple[str, ...] = ()
    call_id: CallId = CallId("")
    """Whose result brought the text."""
    head: tuple[Block, ...] = ()
    """The text as it stands at the beginning of the view, since that result was folded; nothing before."""


class ChildState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A sub-agent that started and has not ended."""

    call_id: CallId
    name: str
    """Of its definition."""
    child: str
    """Its name below the conversation."""
    turn: int
    """That it works for; may be over."""
    cause: MessageId = NO_MESSAGE
    """The message that the turn began with."""
    told_as: ToldAs = ToldAs.SUBAGENT


class LiveState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The live context, and what becomes of the next one."""

    block: tuple[Block, ...] = ()
    """The system block; empty while there is none."""
    seq: int = 0
    """Of the record that brought it."""
    made_us: int = 0
    """UTC, microseconds."""
    made_messages: int = 0
    """Said when it was ordered."""
    ordered: str = ""
    """The job that makes the next one; empty for none."""
    orders: int = 0
    """So far; names the next job."""
    tried_messages: int = 0
    """Said when one was ordered last."""
    is_failed: bool = False
    """Whether the last order failed."""


class TurnState(msgspec.Struct, frozen=True, kw_only=True):
    """The running turn."""

    number: int
    messages: tuple[MessageId, ...]
    principal: str
    began_us: int = 0
    """UTC, microseconds."""
    round: int = 0
    """Of the last model request; 0 before the first."""
    call: str = ""
    """The model call that has no reply yet; empty otherwise."""
    attempts: int = 0
    """Made at the step that is open: a model call without its reply, or a batch of calls."""
    reply: tuple[Block, ...] | None = None
    """Of the open round."""
    stop_reason: str = ""
    calls: tuple[CallState, ...] = ()
    """Of the open round, in the model's order."""
    note: tuple[Block, ...] = ()
    """Of the open round: why its calls were not run."""
    asked: int = 0
    """Model requests of this round, lost ones included; names the next one."""
    failures: int = 0
    """Model calls of this turn that failed and were asked again."""
    retry_at_us: int = 0
    """When the open model call is asked again; 0 for at once."""
    model: str = ""
    """Asked in this turn instead of the preamble's."""
    cuts: int = 0
    """Replies of this turn whose calls were cut off and not run."""
    pauses: int = 0
    """Replies of this turn that the host paused."""
    base: View = View()
    """The view before the turn: what a refusal goes back to."""
    base_notes: tuple[Block, ...] = ()
    """The notes that the turn took into the view."""
    kept: View | None = None
    """The view without what is for this turn alone, which takes its place when the turn ends; None when the turn has
    nothing of that kind."""
    lasting_bytes: int = 0
    """Size of the view up to what is for this turn alone; 0 when it has nothing of that kind."""
    signal_bytes: int = 0
    """Size of the context signal in the view."""
    turn_only_bytes: int = 0
    """Size of what is for this turn alone."""
    sections: dict[str, int] = {}
    """Estimated tokens of both, by section."""
    base_skills: tuple[LoadedSkill, ...] = ()
    """Those loaded before the turn: what a refusal goes back to."""
    live: Block | None = None
    """System block that the requests of this turn hold beside the preamble."""
    base_starts: tuple[TurnStart, ...] = ()
    """Beginnings of the turns before this one."""
    folds_begun: int = 0
    """Attempts at the fold that is open, those that crashed included."""
    has_fold_failed: bool = False
    """Whether the summariser failed in this turn."""
    is_too_long: bool = False
    """Whether the host said of the last request that it does not fit."""
    was_too_long: bool = False
    """Whether it said so before, and the view was replaced for it."""
    last_resort: FoldReason | None = None
    """What was done for want of older turns, since the last reply."""
    has_withdrawn: bool = False
    """Whether a host refused the request for a file in this turn, which was taken out."""
    executed: tuple[str, ...] = ()
    """Writes of this turn, with how they ended; told after a refusal."""
    children_tokens: int = 0
    """Of the sub-agents that worked for this turn and ended."""

    @property
    def open_calls(self) -> tuple[CallState, ...]:
        if not self.calls:
            return ()
        return tuple([call for call in self.calls if call.status is not CallStatus.SETTLED])


class EndedTurn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The turn that ended last, and what there was before it: what retracting its messages goes back to."""

    number: int
    messages: tuple[MessageId, ...]
    notes: tuple[Block, ...] = ()
    """Those that it took into the view."""
    note: tuple[Block, ...] = ()
    """Of its end, waiting for the next user message."""
    skills: tuple[LoadedSkill, ...] | None = None
    """Those loaded before; None when they are the same still."""
    lasting_bytes: int = 0
    executed: tuple[str, ...] = ()
    """Writes of it, with how they ended."""


class ConversationState(msgspec.Struct, frozen=True, kw_only=True):
    """The whole of it."""

    seq: int = 0
    event: int = 0
    created_us: int = 0
    """When the journal was begun, UTC microseconds."""
    agent: str = ""
    title: str = ""
    is_archived: bool = False
    changes: int = 0
    """Since a message came: other titles, archived or not, live contexts ordered by hand."""
    turns: int = 0
    """Turns begun so far."""
    preamble: Preamble = Preamble()
    preambles: tuple[Preamble, ...] = ()
    """Those in use before, the one used last at the end; bounded by ``lately.PREAMBLES_MAX``."""
    view: View = View()
    notes: tuple[Block, ...] = ()
    """Said to the model at the head of its next user message."""
    queued: tuple[QueuedMessage, ...] = ()
    turn: TurnState | None = None
    offers: tuple[Offer, ...] = ()
    """Of the turn that ended last, while no message came after it."""
    ended: EndedTurn | None = None
    """The turn that ended last, while its messages may be retracted."""
    retracted: tuple[MessageId, ...] = ()
    """Messages that were taken back last; bounded by ``RETRACTED_MAX``."""
    context: WorkingContext | None = None
    """As it was told last."""
    context_version: int = 0
    """Raised when another record is selected."""
    context_told: int = 0
    """How often it was told since a turn began."""
    context_us: int = 0
    """When the context was last told, or used by a turn; UTC, microseconds."""
    flags_digest: str = ""
    """Of the flags that were pinned last."""
    flags: tuple[str, ...] = ()
    """Digests of those pinned before, the last at the end; bounded by ``lately.FLAGS_MAX``."""
    skills: tuple[LoadedSkill, ...] = ()
    """In the order in which they were loaded."""
    live: LiveState = LiveState()
    said: int = 0
    """User messages and final replies so far, whatever became of them."""
    recent: tuple[int, ...] = ()
    """Sequence numbers at which the latest turns began; bounded by ``RECENT_MAX``."""
    starts: tuple[TurnStart, ...] = ()
    """Beginnings of the turns in the view, the running one last."""
    messages: int = 0
    """User messages and final replies in the view."""
    generation: int = 0
    """Of the summary; 0 while there is none."""
    covered: tuple[int, int] = (0, 0)
    """Last turn and last record that the summary covers."""
    summary: Summary = Summary()
    items: tuple[Item, ...] = ()
    """Open, and carried from summary to summary."""
    left_out: int = 0
    """Items that found no room in a summary so far."""
    left_out_turns: tuple[int, int] = (0, 0)
    """First and last turn in which those came up; 0 when nobody said."""
    is_measured: bool = True
    """Whether a reply has told what the view costs since it was replaced."""
    fold_failures: int = 0
    """Of the summariser, in a row."""
    fold_failed_us: int = 0
    """When it failed last; UTC, microseconds."""
    lasting_bytes: int = 0
    """What the last turn with something for itself alone left: later requests begin with the same, up to here."""
    lost_calls: tuple[CallId, ...] = ()
    """Writes of earlier turns settled as unknown that may still end; bounded by ``LOST_CALLS_MAX``."""
    children: tuple[ChildState, ...] = ()
    """Sub-agents at work, in the order in which they started; those of turns that are over included."""
    last_usage: Usage = Usage()
    """Of the last reply; without its output where a part of it was left out."""
    measured_bytes: int = 0
    """Size of what ``last_usage`` counted: preamble, messages and the reply."""


RECENT_MAX: Final = 24
RETRACTED_MAX: Final = 8
LOST_CALLS_MAX: Final = 32
PAUSED: Final = "pause_turn"
"""The host's own tools take longer: what it said so far is sent back as it is, and it goes on."""
