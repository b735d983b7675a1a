"""Each public record has one public face; private ones have none."""

from typing import Any, get_args

import msgspec
import pytest

from torpor.conversation.publish import event_of, text_of
from torpor.records.blocks import canonical, text_block
from torpor.records.context import ContextPart, WorkingContext
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
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    PUBLIC_RECORDS,
    AttemptStarted,
    CompactionFailed,
    ContextChanged,
    ContextReplaced,
    ConversationArchived,
    ConversationCreated,
    ConversationForked,
    ConversationRenamed,
    ConversationUnarchived,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    LateResult,
    LiveContextFailed,
    LiveContextOrdered,
    LiveContextReplaced,
    MessageReceived,
    MessageRetracted,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    PreambleReturned,
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
from torpor.records.summary import Item, ItemKind, Summary
from torpor.records.terms import Effect, FoldReason, LiveReason, Offer, Outcome, StepKind, Usage
from torpor.records.told import ToldAs

HEAD: dict[str, Any] = {"seq": 9, "event": 5, "at_us": 7, "turn": 2, "cause": "first"}
EVENT_HEAD: dict[str, Any] = {"event": 5, "at_us": 7, "turn": 2, "cause": "first"}
CALL = CallId("call")
CONTEXT = WorkingContext(screen=ContextPart(text="calendar"))
SAID = (
    canonical({"type": "thinking", "thinking": "secret", "signature": "s"}),
    text_block("one "),
    text_block("two"),
    canonical({"type": "tool_use", "id": "call", "name": "pay", "input": {"card": "secret"}}),
)

PUBLIC: list[tuple[JournalRecord, AnyEvent]] = [
    (
        MessageReceived(**HEAD, message_id=MessageId("m"), principal="ann", blocks=(text_block("hi"),), cleaned=3),
        MessageReceivedEvent(
            **EVENT_HEAD | {"cause": "m"}, message_id=MessageId("m"), principal="ann", text="hi", cleaned=3
        ),
    ),
    (
        ContextChanged(**HEAD, context=CONTEXT, version=3, principal="ann"),
        ContextChangedEvent(**EVENT_HEAD, context=CONTEXT, version=3, principal="ann"),
    ),
    (
        TurnPrepared(
            **HEAD,
            messages=(MessageId("m"),),
            signal=(text_block("secret"),),
            turn_only=(text_block("secret"),),
            policies=("secret@1",),
            withheld=("secret",),
        ),
        TurnStartedEvent(**EVENT_HEAD | {"cause": "m"}, messages=(MessageId("m"),)),
    ),
    (
        ModelReplied(**HEAD, call="2-1-1", round=1, blocks=SAID, stop_reason="tool_use"),
        ReplyFinishedEvent(**EVENT_HEAD, call="2-1-1", text="one two", tool_calls=1, stop_reason="tool_use"),
    ),
    (
        ToolStarted(**HEAD, call_id=CALL, name="pay", effect=Effect.WRITE, idempotency_key="secret"),
        ToolStartedEvent(**EVENT_HEAD, call_id=CALL, name="pay", effect=Effect.WRITE),
    ),
    (
        ToolFinished(**HEAD, call_id=CALL, name="pay", outcome=Outcome.DENIED, block=text_block("secret")),
        ToolFinishedEvent(**EVENT_HEAD, call_id=CALL, name="pay", outcome=Outcome.DENIED),
    ),
    (
        ContextReplaced(
            **HEAD,
            reason=FoldReason.SUMMARY,
            generation=3,
            kept_from=1,
            head=(text_block("secret"),),
            link="secret",
            turns=(1, 9),
            summary=Summary(facts=("secret",)),
            items=(Item(id="i1-1", kind=ItemKind.DENIAL, text="secret"),),
            shortened={"call": text_block("secret")},
        ),
        ContextReplacedEvent(**EVENT_HEAD, reason=FoldReason.SUMMARY, generation=3, turns=(1, 9)),
    ),
    (
        CompactionFailed(**HEAD, code="deadline", detail="why"),
        CompactionFailedEvent(**EVENT_HEAD, code="deadline", detail="why"),
    ),
    (
        LiveContextReplaced(**HEAD, job="secret", words="calm", block=text_block("secret"), messages=4),
        LiveContextReplacedEvent(**EVENT_HEAD, words="calm"),
    ),
    (
        LiveContextFailed(**HEAD, job="secret", code="deadline", detail="why"),
        LiveContextFailedEvent(**EVENT_HEAD, code="deadline", detail="why"),
    ),
    (
        SkillLoaded(**HEAD, call_id=CALL, skill="refunds", digest="secret", allowed_tools=("secret",), tokens=300),
        SkillLoadedEvent(**EVENT_HEAD, skill="refunds"),
    ),
    (
        SubagentStarted(**HEAD, call_id=CALL, name="digger", child="secret"),
        SubagentStartedEvent(**EVENT_HEAD, call_id=CALL, name="digger"),
    ),
    (
        SubagentStarted(**HEAD, call_id=CALL, name="digger", child="secret", told_as=ToldAs.RESEARCH),
        ResearchStartedEvent(**EVENT_HEAD, call_id=CALL, name="digger"),
    ),
    (
        SubagentFinished(
            **HEAD,
            call_id=CALL,
            name="digger",
            child="secret",
            outcome=Outcome.FAILED,
            code="lost",
            told_as=ToldAs.RESEARCH,
        ),
        ResearchFinishedEvent(**EVENT_HEAD, call_id=CALL, name="digger", outcome=Outcome.FAILED, code="lost"),
    ),
    (
        SubagentFinished(
            **HEAD,
            call_id=CALL,
            name="digger",
            child="secret",
            outcome=Outcome.SUCCEEDED,
            code="tokens",
            rounds=3,
            usage=Usage(input_tokens=7),
            bundle="b",
            findings=2,
            dropped=("secret",),
            child_seq=17,
            link="secret",
        ),
        SubagentFinishedEvent(
            **EVENT_HEAD,
            call_id=CALL,
            name="digger",
            outcome=Outcome.SUCCEEDED,
            code="tokens",
            rounds=3,
            bundle="b",
            findings=2,
        ),
    ),
    (
        LateResult(**HEAD, call_id=CALL, name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=text_block("secret")),
        ToolLateEvent(**EVENT_HEAD, call_id=CALL, name="pay", of_turn=1, outcome=Outcome.SUCCEEDED),
    ),
    (
        ConversationRenamed(**HEAD, title="errands", principal="ann"),
        ConversationRenamedEvent(**EVENT_HEAD, title="errands", principal="ann"),
    ),
    (
        MessageRetracted(
            **HEAD, messages=(MessageId("m"),), principal="ann", link="secret", note=(text_block("secret"),)
        ),
        MessageRetractedEvent(**EVENT_HEAD, messages=(MessageId("m"),), principal="ann"),
    ),
    (
        ConversationForked(**HEAD, source="c_0", before=MessageId("m"), messages=(MessageId("m"),), principal="ann"),
        ConversationForkedEvent(
            **EVENT_HEAD, source="c_0", before=MessageId("m"), messages=(MessageId("m"),), principal="ann"
        ),
    ),
    (ConversationArchived(**HEAD, principal="ann"), ConversationArchivedEvent(**EVENT_HEAD, principal="ann")),
    (ConversationUnarchived(**HEAD, principal="ann"), ConversationUnarchivedEvent(**EVENT_HEAD, principal="ann")),
    (TurnFinished(**HEAD), TurnFinishedEvent(**EVENT_HEAD)),
    (
        TurnCancelled(**HEAD, reason="client", note=text_block("secret"), partial=SAID[:2]),
        TurnCancelledEvent(**EVENT_HEAD, reason="client", text="one "),
    ),
    (
        TurnFailed(
            **HEAD,
            code="crashed",
            detail="why",
            note=text_block("secret"),
            partial=SAID[:3],
            offers=(Offer.CONTINUE,),
        ),
        TurnFailedEvent(**EVENT_HEAD, code="crashed", detail="why", text="one two", offers=(Offer.CONTINUE,)),
    ),
    (
        TurnRefused(**HEAD, detail="it refused", note=text_block("secret")),
        TurnRefusedEvent(**EVENT_HEAD, detail="it refused"),
    ),
    (
        ModelFailed(
            **HEAD, call="c", round=1, code="model_unavailable", detail="why", retry_at_us=9, next_model="other"
        ),
        ModelFailedEvent(
            **EVENT_HEAD, call="c", code="model_unavailable", detail="why", retry_at_us=9, next_model="other"
        ),
    ),
]

PRIVATE: list[JournalRecord] = [
    ConversationCreated(agent="clerk"),
    FlagsPinned(digest="f", decisions=()),
    FlagsReturned(digest="f"),
    LiveContextOrdered(job="live-1", reason=LiveReason.HAND, messages=2),
    PreambleChanged(digest="d", body=canonical({})),
    PreambleReturned(digest="d"),
    AttemptStarted(step=StepKind.RUN_TOOLS, round=1, attempt=2),
    ModelRequested(call="c", round=1, preamble="d", link="l", sections={}),
]


@pytest.mark.parametrize(("record", "event"), PUBLIC)
def test_a_public_record_shows_what_people_may_see_and_no_more(record: JournalRecord, event: AnyEvent) -> None:
    assert event_of(record) == event
    assert b"secret" not in msgspec.json.encode(event)


@pytest.mark.parametrize("record", PRIVATE)
def test_a_private_record_has_no_event(record: JournalRecord) -> None:
    assert event_of(record) is None


def test_every_kind_of_record_is_either_public_or_private() -> None:
    public, private = {type(record) for record, _ in PUBLIC}, {type(record) for record in PRIVATE}
    assert public == set(PUBLIC_RECORDS)
    assert public | private == set(get_args(JournalRecord))


def test_what_people_read_of_blocks_is_their_text_joined_as_it_was_streamed() -> None:
    assert text_of(SAID) == "one two"
    assert text_of(()) == ""
