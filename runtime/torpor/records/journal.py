"""The records of a conversation's journal: one committed fact each.

Frozen, explicitly tagged, JSON. Fields are only ever added, with defaults; a changed meaning is a new tag. A record is
neither a database row (the store's), nor a wire frame (the gateway's), nor an event (its public projection, made in
``conversation.publish``). A kind is defined when it is first written, not before.
"""

from typing import Final, TypeAlias

import msgspec

from torpor.records.blocks import Block
from torpor.records.context import WorkingContext
from torpor.records.flag_decision import FlagDecision
from torpor.records.ids import NO_MESSAGE, CallId, MessageId
from torpor.records.summary import Closing, Item, Summary
from torpor.records.terms import Effect, FoldReason, LiveReason, Offer, Outcome, StepKind, Usage, WhenBusy
from torpor.records.told import ToldAs
from torpor.records.work_budget import WorkBudget


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The header every record carries."""

    seq: int = 0
    """Contiguous per conversation from 1; 0 before it is numbered. Never shown to clients."""
    at_us: int = 0
    """UTC, microseconds."""
    turn: int = 0
    """The turn it belongs to; 0 for none."""
    event: int = 0
    """Contiguous per conversation from 1 over the records with a public side; 0 for the others."""
    cause: MessageId = NO_MESSAGE
    """The message that its turn began with; of records with a public side that do not name it themselves."""


class ConversationCreated(Record, frozen=True, tag="conversation_created"):
    """Always the first record."""

    agent: str
    title: str = ""
    budget: WorkBudget | None = None
    """Of a sub-agent."""


class ConversationRenamed(Record, frozen=True, tag="conversation_renamed"):
    """It has another title."""

    title: str
    """Empty for none."""
    principal: str


class ConversationArchived(Record, frozen=True, tag="conversation_archived"):
    """Lists leave it out unless asked; it goes on otherwise."""

    principal: str


class ConversationUnarchived(Record, frozen=True, tag="conversation_unarchived"):
    """Lists show it again: somebody asked for that, or sent a message."""

    principal: str


class ConversationForked(Record, frozen=True, tag="conversation_forked"):
    """What stands before this was copied from another conversation of the owner; from here on they have nothing in
    common."""

    source: str
    """Id of that conversation; it may be gone by now. All that was copied of it stands before this record."""
    before: MessageId
    """The message that it was forked before, there."""
    principal: str
    messages: tuple[MessageId, ...] = ()
    """Such as waited there, which are no part of this one."""


class MessageReceived(Record, frozen=True, tag="message_received"):
    """A client's message, durable and so acknowledged; it waits until a turn takes it."""

    message_id: MessageId
    principal: str
    blocks: tuple[Block, ...]
    when_busy: WhenBusy = WhenBusy.QUEUE
    cleaned: int = 0
    """How many characters were replaced because they cannot be stored or sent."""
    lookback: int = 0
    """Exchanges that are to be quoted in the turn that it begins; nothing when it joins a running one."""


class PreambleChanged(Record, frozen=True, tag="preamble_changed"):
    """What stands before the messages of a request, whole: ``{"model", "max_tokens", "system", "tools", …}``."""

    digest: str
    """sha256 of the canonical body, hex; the hash chain starts from it."""
    body: msgspec.Raw


class PreambleReturned(Record, frozen=True, tag="preamble_returned"):
    """What stands before the messages is again what an earlier ``preamble_changed`` of the journal holds."""

    digest: str


class MessageRetracted(Record, frozen=True, tag="message_retracted"):
    """Messages were taken back: such as waited, or those of the last turn, which leaves the view whole; then ``turn``
    names it. What its tools did stays done."""

    messages: tuple[MessageId, ...]
    principal: str
    link: str = ""
    """Last link of the hash chain over the view that is left, hex; only with a turn."""
    note: tuple[Block, ...] = ()
    """Tells the model, in its next user message, which writes were executed in the turn; empty when none was."""


class ContextChanged(Record, frozen=True, tag="context_changed"):
    """The application told what the user works on; it replaces what was told before."""

    context: WorkingContext
    version: int
    """Raised when another record is selected."""
    principal: str


class FlagsPinned(Record, frozen=True, tag="flags_pinned"):
    """What gates the tools and skills that turns offer from here on; recorded when it differs from the last one."""

    digest: str
    decisions: tuple[FlagDecision, ...]


class FlagsReturned(Record, frozen=True, tag="flags_returned"):
    """What gates the tools and skills is again what an earlier ``flags_pinned`` of the journal says."""

    digest: str


class TurnPrepared(Record, frozen=True, tag="turn_prepared"):
    """A turn begins: the notes that waited for a user message, the context signal, these messages and what is for this
    turn alone enter the model's view in this order."""

    messages: tuple[MessageId, ...]
    signal: tuple[Block, ...] = ()
    """The working context; it stays where it is said."""
    turn_only: tuple[Block, ...] = ()
    """Behind the messages at every call of this turn, and out of the view when it ends."""
    sections: dict[str, int] = {}
    """Estimated tokens of ``signal`` and of the parts of ``turn_only``, by section."""
    withheld: tuple[str, ...] = ()
    """Labels of context parts that the agent may not see."""
    labels: tuple[str, ...] = ()
    """Labels of the context parts in ``signal``."""
    policies: tuple[str, ...] = ()
    """Policy excerpts in ``turn_only``, each as ``id@version``."""
    lookback: tuple[int, ...] = ()
    """Turns that are quoted in ``turn_only``."""
    live: int = 0
    """Sequence number of the record whose live context the turn's requests hold; 0 for none."""
    cut: tuple[str, ...] = ()
    """What there is less of, or nothing, since the first request would not fit: sections, or ``read_earlier``."""


class AttemptStarted(Record, frozen=True, tag="attempt_started"):
    """A step that acts on the outside begins again; committed before it does."""

    step: StepKind
    round: int
    attempt: int
    """From 2: the first attempt needs no record of its own."""


class ModelRequested(Record, frozen=True, tag="model_requested"):
    """A request as it is sent: preamble and the messages up to ``link``."""

    call: str
    """Names this model call towards clients; a new attempt is a new call."""
    round: int
    preamble: str
    link: str
    """Last link of the hash chain over the messages, hex."""
    sections: dict[str, int]
    """Estimated tokens by section of the request."""
    joined: tuple[MessageId, ...] = ()
    """Messages that steer: they enter the view here, behind the results of the round before."""
    purpose: str = "turn"
    model: str = ""
    """Asked instead of the preamble's model, which failed; empty for that one."""
    estimated_tokens: int = 0
    """Of the whole request, told beforehand from the last count and what is new; 0 in older records."""
    budget_tokens: int = 0
    """What the agent's profile allows a request and its reply; 0 in older records."""
    over: tuple[str, ...] = ()
    """Allotments of the profile that this request exceeds."""
    live: str = ""
    """sha256 of the live context's block, hex; empty where the request has none."""


class ModelReplied(Record, frozen=True, tag="model_replied"):
    """A complete reply, block for block as the host sent it."""

    call: str
    round: int
    blocks: tuple[Block, ...]
    stop_reason: str
    usage: Usage = Usage()
    model: str = ""
    request_id: str = ""
    unusable: dict[str, str] = {}
    """Calls whose arguments cannot be used, by id, and why; they are settled as failed and never run."""
    dropped: tuple[str, ...] = ()
    """Types of blocks left out, because no later request may repeat them or nothing may come of them."""
    note: tuple[Block, ...] = ()
    """Tells the model, behind the reply, why its calls were not run; the turn then asks again."""


class ModelFailed(Record, frozen=True, tag="model_failed"):
    """A model call that ended without a complete reply."""

    call: str
    round: int
    code: str
    detail: str = ""
    retry_at_us: int = 0
    """When it is asked again, UTC microseconds; 0 when it is not."""
    next_model: str = ""
    """Asked from then on instead of the preamble's; empty for no change."""


class ToolStarted(Record, frozen=True, tag="tool_started"):
    """A tool call is about to act; for a write this is durable before it does."""

    call_id: CallId
    name: str
    effect: Effect
    idempotency_key: str


class ToolFinished(Record, frozen=True, tag="tool_finished"):
    """The one result of a tool call."""

    call_id: CallId
    name: str
    outcome: Outcome
    block: Block
    handle: str = ""
    """Where the whole result lies when ``block`` holds only a part of it."""
    cleaned: int = 0
    """How many characters were replaced because they cannot be stored or sent."""


class ContextReplaced(Record, frozen=True, tag="context_replaced"):
    """A part of the view was replaced; the journal keeps what it replaced, and ``read_earlier`` reads it."""

    reason: FoldReason
    generation: int
    """Of the summary; 0 while there is none."""
    kept_from: int
    """The first turn that stays as it was said."""
    head: tuple[Block, ...]
    """What the view begins with now: the summary, and texts of skills that were loaded in what was folded."""
    link: str
    """Last link of the hash chain over the view that is left, hex."""
    turns: tuple[int, int] = (0, 0)
    """First and last turn that the summary covers."""
    seqs: tuple[int, int] = (0, 0)
    """First and last record that it covers."""
    summary: Summary = Summary()
    items: tuple[Item, ...] = ()
    """Open after this."""
    closed: tuple[Closing, ...] = ()
    left_out: int = 0
    """Open items that found no room, since the conversation began."""
    left_out_turns: tuple[int, int] = (0, 0)
    """First and last turn in which those came up; 0 when nobody said."""
    skills: tuple[str, ...] = ()
    """Keys of the skills whose texts are in ``head``."""
    forgotten: tuple[str, ...] = ()
    """Keys of skills that were loaded in what was folded and are not to be had any more, or found no room."""
    shortened: dict[str, Block] = {}
    """Results that stay, but shorter, by the id of their call."""
    withdrawn: dict[int, Block] = {}
    """What stands for attachments, by their place among those of the view, from 0; ``why``, an ``attachments.Why``."""
    why: str = ""
    before_tokens: int = 0
    """Estimated by its size, of the next request without this."""
    after_tokens: int = 0
    """Likewise, of the next request."""
    is_without_tool: bool = False
    """Whether there was no room for the tool that reads earlier turns, which comes with a fold or a turn after it."""
    usage: Usage = Usage()
    """Of the summariser, all its calls together."""
    model: str = ""
    """Of the summariser."""
    calls: int = 0
    """Of the summariser."""


FOLD_CUT: Final = "cancelled"
"""Code of a fold that was cut with its turn, which says nothing against the summariser."""


class CompactionFailed(Record, frozen=True, tag="compaction_failed"):
    """The summariser gave nothing that can be used; the view is as it was, and the turn goes on, if it was not cut."""

    code: str
    detail: str
    usage: Usage = Usage()
    calls: int = 0
    left_alone_until_us: int = 0
    """Until when the summariser is not asked again, UTC; 0 where the next turn may."""


class LiveContextOrdered(Record, frozen=True, tag="live_context_ordered"):
    """A job is to make the live context anew; it is written with this record."""

    job: str
    reason: LiveReason
    messages: int
    """Said so far."""


class LiveContextReplaced(Record, frozen=True, tag="live_context_replaced"):
    """The live context is another one, from the next turn on."""

    job: str
    words: str
    block: Block
    """The system block that stands for it."""
    messages: int
    """Said when it was ordered."""
    usage: Usage = Usage()
    model: str = ""


class LiveContextFailed(Record, frozen=True, tag="live_context_failed"):
    """No live context could be made; the one before stays."""

    job: str
    code: str
    detail: str
    usage: Usage = Usage()


class SkillLoaded(Record, frozen=True, tag="skill_loaded"):
    """A tool call brought the text of a skill into the conversation; follows that call's result."""

    call_id: CallId
    skill: str
    """Its key, or ``scope:name`` of one whose key another answers to."""
    digest: str
    """sha256 of the skill's file, hex: the version that was loaded."""
    allowed_tools: tuple[str, ...] = ()
    """What the skill says it needs; a restriction where the agent's definition makes it one."""
    tokens: int = 0
    """Estimated, of the text."""


class SubagentStarted(Record, frozen=True, tag="subagent_started"):
    """A tool call that runs has a sub-agent at work."""

    call_id: CallId
    name: str
    """Of its definition."""
    child: str
    """Its name below the conversation: its own journal is that of ``key.child(child)``."""
    told_as: ToldAs = ToldAs.SUBAGENT


class SubagentFinished(Record, frozen=True, tag="subagent_finished"):
    """A sub-agent has ended, in time for the result of its call or after it."""

    call_id: CallId
    name: str
    child: str
    outcome: Outcome
    code: str = ""
    """Empty where it answered; ``steps``, ``tokens`` or ``seconds``: the budget that it overran, ``context_too_long``
    or ``output_limit``: the limit of its model, and gave what it had; ``cancelled``; ``lost``: its process ended;
    ``failed``: the result says how."""
    rounds: int = 0
    """Model calls that were answered."""
    usage: Usage = Usage()
    """Of all of them, and of the sub-agents below it."""
    bundle: str = ""
    """Where what it found lies; empty for nothing."""
    findings: int = 0
    """Different ones that its tools had collected, of which it answered with a few."""
    dropped: tuple[str, ...] = ()
    """Ids that it named and nobody had found."""
    child_seq: int = 0
    """The last record of its journal."""
    link: str = ""
    """Last link of its view, hex."""
    told_as: ToldAs = ToldAs.SUBAGENT


class LateResult(Record, frozen=True, tag="late_result"):
    """A write that was settled as unknown ended after all; the note reaches the model at its next turn."""

    call_id: CallId
    name: str
    of_turn: int
    outcome: Outcome
    note: Block


class TurnFinished(Record, frozen=True, tag="turn_finished"):
    """The reply is complete."""


class TurnCancelled(Record, frozen=True, tag="turn_cancelled"):
    """The turn was ended early on purpose; what was said so far is kept."""

    reason: str
    """``client``, ``operator`` or ``interrupt`` (a message asked for it)."""
    note: Block
    """Tells the model, in its next user message, that its reply was cut."""
    partial: tuple[Block, ...] = ()
    """Finished blocks and the text so far of the reply that was cut."""


class TurnFailed(Record, frozen=True, tag="turn_failed"):
    """The turn could not be completed; its message stays in the view, marked by the note."""

    code: str
    detail: str
    note: Block
    partial: tuple[Block, ...] = ()
    """Finished blocks and the text so far of the reply that was lost."""
    offers: tuple[Offer, ...] = ()
    """What the client may do about it."""


class TurnRefused(Record, frozen=True, tag="turn_refused"):
    """The model refused; the whole turn leaves the view, or every later request would be refused with it."""

    detail: str
    note: Block
    """Tells the model, in its next user message, that something was taken out and which writes were executed in it."""


JournalRecord: TypeAlias = (
    ConversationCreated
    | ConversationRenamed
    | ConversationArchived
    | ConversationUnarchived
    | ConversationForked
    | MessageReceived
    | MessageRetracted
    | ContextChanged
    | FlagsPinned
    | FlagsReturned
    | PreambleChanged
    | PreambleReturned
    | TurnPrepared
    | AttemptStarted
    | ModelRequested
    | ModelReplied
    | ModelFailed
    | ToolStarted
    | ToolFinished
    | ContextReplaced
    | CompactionFailed
    | LiveContextOrdered
    | LiveContextReplaced
    | LiveContextFailed
    | SkillLoaded
    | SubagentStarted
    | SubagentFinished
    | LateResult
    | TurnFinished
    | TurnCancelled
    | TurnFailed
    | TurnRefused
)
"""Any record of a journal."""

PUBLIC_RECORDS: Final = (
    ConversationRenamed,
    ConversationArchived,
    ConversationUnarchived,
    ConversationForked,
    MessageReceived,
    MessageRetracted,
    ContextChanged,
    TurnPrepared,
    ModelReplied,
    ModelFailed,
    ToolStarted,
    ToolFinished,
    ContextReplaced,
    CompactionFailed,
    LiveContextReplaced,
    LiveContextFailed,
    SkillLoaded,
    SubagentStarted,
    SubagentFinished,
    LateResult,
    TurnFinished,
    TurnCancelled,
    TurnFailed,
    TurnRefused,
)
"""Records with a public side: they carry an event number and are projected by ``conversation.publish``."""
