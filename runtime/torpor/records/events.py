"""Events: the public projection of records, and the ephemeral lane beside them.

Events are numbered, durable and replayed. Deltas and progress are neither: they may be dropped, and they never mean
success.
"""

from typing import Final, TypeAlias

import msgspec

from torpor.records.attachments import Attachment
from torpor.records.context import WorkingContext
from torpor.records.ids import NO_MESSAGE, CallId, MessageId
from torpor.records.terms import Effect, FoldReason, Offer, Outcome


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """The header every event carries."""

    event: int
    at_us: int
    turn: int = 0
    cause: MessageId = NO_MESSAGE
    """The message that it came of: itself, or the one that its turn began with."""


class MessageReceivedEvent(Event, frozen=True, tag="message.received"):
    message_id: MessageId
    principal: str
    text: str
    cleaned: int = 0
    attachments: tuple[Attachment, ...] = ()
    """Files that came with it; ``fetch`` and ``link`` take what each has as ``blob``."""


class MessageRetractedEvent(Event, frozen=True, tag="message.retracted"):
    """These messages were taken back, and ``turn``, where it is said, is no part any more of what the model sees."""

    messages: tuple[MessageId, ...]
    principal: str


class ConversationRenamedEvent(Event, frozen=True, tag="conversation.renamed"):
    title: str
    principal: str


class ConversationArchivedEvent(Event, frozen=True, tag="conversation.archived"):
    """Lists leave it out unless asked."""

    principal: str


class ConversationUnarchivedEvent(Event, frozen=True, tag="conversation.unarchived"):
    principal: str


class ConversationForkedEvent(Event, frozen=True, tag="conversation.forked"):
    """What came before was copied from ``source``, up to the message ``before``; ``messages`` are no part of this."""

    source: str
    before: MessageId
    principal: str
    messages: tuple[MessageId, ...] = ()


class ContextChangedEvent(Event, frozen=True, tag="context.changed"):
    """The working context is another one; a higher version means that another record is selected."""

    version: int
    context: WorkingContext
    principal: str


class TurnStartedEvent(Event, frozen=True, tag="turn.started"):
    messages: tuple[MessageId, ...]


class ReplyFinishedEvent(Event, frozen=True, tag="reply.finished"):
    """One model reply is complete; the turn goes on when it asked for tools."""

    call: str
    text: str
    tool_calls: int = 0
    stop_reason: str = ""


class ModelFailedEvent(Event, frozen=True, tag="model.failed"):
    """A model call gave no reply; with ``retry_at_us`` it is asked again then, and nothing is lost so far."""

    call: str
    code: str
    detail: str
    retry_at_us: int = 0
    next_model: str = ""


class ToolStartedEvent(Event, frozen=True, tag="tool.started"):
    call_id: CallId
    name: str
    effect: Effect


class ToolFinishedEvent(Event, frozen=True, tag="tool.finished"):
    call_id: CallId
    name: str
    outcome: Outcome


class SkillLoadedEvent(Event, frozen=True, tag="skill.loaded"):
    """The agent read a skill."""

    skill: str


class SubagentStartedEvent(Event, frozen=True, tag="subagent.started"):
    """A tool call has a sub-agent at work."""

    call_id: CallId
    name: str


class SubagentFinishedEvent(Event, frozen=True, tag="subagent.finished"):
    """It has ended; what it found is in the bundle, where it has one."""

    call_id: CallId
    name: str
    outcome: Outcome
    code: str = ""
    """Empty where it answered; else the budget or limit that it overran and gave what it had, or what ended it."""
    rounds: int = 0
    """Model calls that were answered."""
    bundle: str = ""
    findings: int = 0


class ResearchStartedEvent(SubagentStartedEvent, frozen=True, tag="research.started"):
    """That is one which owes a research bundle."""


class ResearchFinishedEvent(SubagentFinishedEvent, frozen=True, tag="research.finished"):
    """Likewise."""


class ContextReplacedEvent(Event, frozen=True, tag="context.replaced"):
    """Older turns are a summary now, as far as the model is concerned; a client keeps what it has."""

    reason: FoldReason
    generation: int
    turns: tuple[int, int]
    """First and last turn that the summary covers."""


class CompactionFailedEvent(Event, frozen=True, tag="compaction.failed"):
    """No summary could be made; the turn goes on without."""

    code: str
    detail: str


class LiveContextReplacedEvent(Event, frozen=True, tag="live_context.replaced"):
    """The agent's notion of how things stand is another one."""

    words: str


class LiveContextFailedEvent(Event, frozen=True, tag="live_context.failed"):
    """It could not be made anew; the one before stays."""

    code: str
    detail: str


class ToolLateEvent(Event, frozen=True, tag="tool.late"):
    """A write whose outcome had been given as unknown ended after all."""

    call_id: CallId
    name: str
    of_turn: int
    outcome: Outcome


class TurnFinishedEvent(Event, frozen=True, tag="turn.finished"):
    pass


class TurnCancelledEvent(Event, frozen=True, tag="turn.cancelled"):
    reason: str
    text: str = ""
    """What had been said of the reply that was cut."""


class TurnFailedEvent(Event, frozen=True, tag="turn.failed"):
    code: str
    detail: str
    text: str = ""
    """What had been said of the reply that was lost."""
    offers: tuple[Offer, ...] = ()
    """What ``send`` with ``resume`` can do about it."""


class TurnRefusedEvent(Event, frozen=True, tag="turn.refused"):
    """The model refused to answer; what it refused is no longer part of the conversation that it sees."""

    detail: str


AnyEvent: TypeAlias = (
    MessageReceivedEvent
    | MessageRetractedEvent
    | ConversationRenamedEvent
    | ConversationArchivedEvent
    | ConversationUnarchivedEvent
    | ConversationForkedEvent
    | ContextChangedEvent
    | TurnStartedEvent
    | ReplyFinishedEvent
    | ModelFailedEvent
    | ToolStartedEvent
    | ToolFinishedEvent
    | ContextReplacedEvent
    | CompactionFailedEvent
    | LiveContextReplacedEvent
    | LiveContextFailedEvent
    | SkillLoadedEvent
    | SubagentStartedEvent
    | SubagentFinishedEvent
    | ResearchStartedEvent
    | ResearchFinishedEvent
    | ToolLateEvent
    | TurnFinishedEvent
    | TurnCancelledEvent
    | TurnFailedEvent
    | TurnRefusedEvent
)


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of the reply that is being written."""

    call: str
    offset: int
    """Where ``text`` begins in the text of ``call``, in Unicode code points."""
    text: str


TOOL_PROGRESS: Final = "tool.progress"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a running tool, or a sub-agent at work for it, says of itself."""

    call_id: CallId
    name: str
    """Of the tool, or of the sub-agent's definition."""
    text: str
    type: str = TOOL_PROGRESS
    """Else that of a sub-agent: ``records.told``."""
