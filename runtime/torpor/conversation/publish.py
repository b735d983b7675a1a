"""Record to event: the one place where a private fact gets its public face."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from torpor.records.attachments import attachment_of, is_marker
from torpor.records.blocks import Block, head_of
from torpor.records.events import (
    AnyEvent,
    CompactionFailedEvent,
    ContextChangedEvent,
    ContextReplacedEvent,
    ConversationArchivedEvent,
    ConversationForkedEvent,
    ConversationRenamedEvent,
    ConversationUnarchivedEvent,
    LiveContextFailedEvent,
    LiveContextReplacedEvent,
    MessageReceivedEvent,
    MessageRetractedEvent,
    ModelFailedEvent,
    ReplyFinishedEvent,
    ResearchFinishedEvent,
    ResearchStartedEvent,
    SkillLoadedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    ToolFinishedEvent,
    ToolLateEvent,
    ToolStartedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnRefusedEvent,
    TurnStartedEvent,
)
from torpor.records.ids import NO_MESSAGE, MessageId
from torpor.records.journal import (
    CompactionFailed,
    ContextChanged,
    ContextReplaced,
    ConversationArchived,
    ConversationForked,
    ConversationRenamed,
    ConversationUnarchived,
    JournalRecord,
    LateResult,
    LiveContextFailed,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelFailed,
    ModelReplied,
    Record,
    SkillLoaded,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.told import ToldAs


def event_of(record: JournalRecord) -> AnyEvent | None:
    """The public projection of ``record``; None when it has none."""
    project = _PROJECTIONS.get(type(record))
    return project(record) if project else None


def text_of(blocks: Iterable[Block]) -> str:
    """What people read of these blocks: the text ones, joined without a separator as the deltas were."""
    return "".join(head.text for head in map(head_of, blocks) if head.type == "text")


def _head(record: Record, *, cause: MessageId = NO_MESSAGE) -> dict[str, Any]:
    return {"event": record.event, "at_us": record.at_us, "turn": record.turn, "cause": cause or record.cause}


def _message_received(record: MessageReceived) -> AnyEvent:
    return MessageReceivedEvent(
        **_head(record, cause=record.message_id),
        message_id=record.message_id,
        principal=record.principal,
        text=text_of(record.blocks),
        cleaned=record.cleaned,
        attachments=tuple(map(attachment_of, filter(is_marker, map(bytes, record.blocks)))),
    )


def _message_retracted(record: MessageRetracted) -> AnyEvent:
    return MessageRetractedEvent(**_head(record), messages=record.messages, principal=record.principal)


def _renamed(record: ConversationRenamed) -> AnyEvent:
    return ConversationRenamedEvent(**_head(record), title=record.title, principal=record.principal)


def _archived(record: ConversationArchived) -> AnyEvent:
    return ConversationArchivedEvent(**_head(record), principal=record.principal)


def _unarchived(record: ConversationUnarchived) -> AnyEvent:
    return ConversationUnarchivedEvent(**_head(record), principal=record.principal)


def _forked(record: ConversationForked) -> AnyEvent:
    return ConversationForkedEvent(
        **_head(record),
        source=record.source,
        before=record.before,
        messages=record.messages,
        principal=record.principal,
    )


def _context_changed(record: ContextChanged) -> AnyEvent:
    return ContextChangedEvent(
        **_head(record), version=record.version, context=record.context, principal=record.principal
    )


def _turn_started(record: TurnPrepared) -> AnyEvent:
    return TurnStartedEvent(**_head(record, cause=next(iter(record.messages), NO_MESSAGE)), messages=record.messages)


def _reply_finished(record: ModelReplied) -> AnyEvent:
    heads = [head_of(block) for block in record.blocks]
    return ReplyFinishedEvent(
        **_head(record),
        call=record.call,
        text="".join(head.text for head in heads if head.type == "text"),
        tool_calls=sum(head.type == "tool_use" for head in heads),
        stop_reason=record.stop_reason,
    )


def _model_failed(record: ModelFailed) -> AnyEvent:
    return ModelFailedEvent(
        **_head(record),
        call=record.call,
        code=record.code,
        detail=record.detail,
        retry_at_us=record.retry_at_us,
        next_model=record.next_model,
    )


def _tool_started(record: ToolStarted) -> AnyEvent:
    return ToolStartedEvent(**_head(record), call_id=record.call_id, name=record.name, effect=record.effect)


def _tool_finished(record: ToolFinished) -> AnyEvent:
    return ToolFinishedEvent(**_head(record), call_id=record.call_id, name=record.name, outcome=record.outcome)


def _context_replaced(record: ContextReplaced) -> AnyEvent:
    return ContextReplacedEvent(**_head(record), reason=record.reason, generation=record.generation, turns=record.turns)


def _compaction_failed(record: CompactionFailed) -> AnyEvent:
    return CompactionFailedEvent(**_head(record), code=record.code, detail=record.detail)


def _live_context_replaced(record: LiveContextReplaced) -> AnyEvent:
    return LiveContextReplacedEvent(**_head(record), words=record.words)


def _live_context_failed(record: LiveContextFailed) -> AnyEvent:
    return LiveContextFailedEvent(**_head(record), code=record.code, detail=record.detail)


def _skill_loaded(record: SkillLoaded) -> AnyEvent:
    return SkillLoadedEvent(**_head(record), skill=record.skill)


def _subagent_started(record: SubagentStarted) -> AnyEvent:
    kind = ResearchStartedEvent if record.told_as is ToldAs.RESEARCH else SubagentStartedEvent
    return kind(**_head(record), call_id=record.call_id, name=record.name)


def _subagent_finished(record: SubagentFinished) -> AnyEvent:
    kind = ResearchFinishedEvent if record.told_as is ToldAs.RESEARCH else SubagentFinishedEvent
    return kind(
        **_head(record),
        call_id=record.call_id,
        name=record.name,
        outcome=record.outcome,
        code=record.code,
        rounds=record.rounds,
        bundle=record.bundle,
        findings=record.findings,
    )


def _tool_late(record: LateResult) -> AnyEvent:
    return ToolLateEvent(
        **_head(record), call_id=record.call_id, name=record.name, of_turn=record.of_turn, outcome=record.outcome
    )


def _turn_finished(record: TurnFinished) -> AnyEvent:
    return TurnFinishedEvent(**_head(record))


def _turn_cancelled(record: TurnCancelled) -> AnyEvent:
    return TurnCancelledEvent(**_head(record), reason=record.reason, text=text_of(record.partial))


def _turn_failed(record: TurnFailed) -> AnyEvent:
    return TurnFailedEvent(
        **_head(record), code=record.code, detail=record.detail, text=text_of(record.partial), offers=record.offers
    )


def _turn_refused(record: TurnRefused) -> AnyEvent:
    return TurnRefusedEvent(**_head(record), detail=record.detail)


_PROJECTIONS: Final[dict[type[Record], Callable[[Any], AnyEvent]]] = {
    ConversationForked: _forked,
    ConversationRenamed: _renamed,
    ConversationArchived: _archived,
    ConversationUnarchived: _unarchived,
    MessageReceived: _message_received,
    MessageRetracted: _message_retracted,
    ContextChanged: _context_changed,
    TurnPrepared: _turn_started,
    ModelReplied: _reply_finished,
    ModelFailed: _model_failed,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    ContextReplaced: _context_replaced,
    CompactionFailed: _compaction_failed,
    LiveContextReplaced: _live_context_replaced,
    LiveContextFailed: _live_context_failed,
    SkillLoaded: _skill_loaded,
    SubagentStarted: _subagent_started,
    SubagentFinished: _subagent_finished,
    LateResult: _tool_late,
    TurnFinished: _turn_finished,
    TurnCancelled: _turn_cancelled,
    TurnFailed: _turn_failed,
    TurnRefused: _turn_refused,
}
