"""A journal with every kind of record in it, and a secret wherever something is said."""

from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.records.blocks import canonical, text_block, tool_result_block
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.flag_decision import FlagDecision
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
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
from torpor.records.summary import Closing, Item, ItemKind, Summary
from torpor.records.terms import Effect, FoldReason, LiveReason, Outcome, StepKind, Usage, WhenBusy

START_US = 1_764_500_000_000_000
PAY = CallId("call_1")
SECRET = "my number is 4711"
JOURNAL: tuple[tuple[int, JournalRecord], ...] = (
    (0, ConversationCreated(agent="rehearsal")),
    (
        0,
        MessageReceived(
            message_id=MessageId("m1"),
            principal="ada",
            blocks=(text_block(SECRET),),
            when_busy=WhenBusy.STEER,
            cleaned=2,
        ),
    ),
    (
        0,
        ContextChanged(
            context=WorkingContext(
                record=SelectedRecord(type="patient", id="4711", text=SECRET, label="personal"),
                screen=ContextPart(text=SECRET, label="public"),
            ),
            version=1,
            principal="ada",
        ),
    ),
    (
        0,
        FlagsPinned(
            digest="f" * 64,
            decisions=(
                FlagDecision(key="memory", value=False, variant="off", reason="TARGETING_MATCH"),
                FlagDecision(key="tool.pay", value=True),
            ),
        ),
    ),
    (0, FlagsReturned(digest="e" * 16)),
    (0, PreambleChanged(digest="a" * 64, body=canonical({"model": "scripted", "tools": [{"name": "pay"}]}))),
    (0, PreambleReturned(digest="b" * 64)),
    (
        0,
        TurnPrepared(
            turn=1,
            messages=(MessageId("m1"),),
            signal=(text_block(SECRET),),
            turn_only=(text_block(SECRET),),
            sections={"envelope": 20, "policy_excerpts": 60},
            withheld=("personal",),
            labels=("public",),
            policies=("refunds@3",),
        ),
    ),
    (
        0,
        ModelRequested(
            turn=1, call="c1", round=1, preamble="a" * 64, link="b" * 64, sections={"instructions": 30, "history": 12}
        ),
    ),
    (
        1_500_000,
        ModelReplied(
            turn=1,
            call="c1",
            round=1,
            blocks=(
                text_block(SECRET),
                canonical({"type": "tool_use", "id": PAY, "name": "pay", "input": {"to": SECRET}}),
            ),
            stop_reason="tool_use",
            usage=Usage(input_tokens=10, cache_read_input_tokens=32, output_tokens=5),
        ),
    ),
    (1_000, ToolStarted(turn=1, call_id=PAY, name="pay", effect=Effect.WRITE, idempotency_key="k")),
    (1_000, AttemptStarted(turn=1, step=StepKind.RUN_TOOLS, round=1, attempt=2)),
    (
        250_000,
        ToolFinished(
            turn=1,
            call_id=PAY,
            name="pay",
            outcome=Outcome.UNKNOWN,
            block=tool_result_block(PAY, SECRET, is_error=True),
            handle="h",
        ),
    ),
    (0, SkillLoaded(turn=1, call_id=PAY, skill="refunds", digest="e" * 64, allowed_tools=("pay",), tokens=300)),
    (0, SubagentStarted(turn=1, call_id=PAY, name="digger", child="call_1-1")),
    (
        0,
        SubagentFinished(
            turn=1,
            call_id=PAY,
            name="digger",
            child="call_1-1",
            outcome=Outcome.SUCCEEDED,
            code="steps",
            rounds=3,
            usage=Usage(input_tokens=700, output_tokens=20),
            bundle="b" * 64,
            findings=2,
            dropped=(SECRET,),
            child_seq=17,
            link="c" * 64,
        ),
    ),
    (
        0,
        ContextReplaced(
            turn=4,
            reason=FoldReason.SUMMARY,
            generation=2,
            kept_from=2,
            head=(text_block(SECRET), text_block(SECRET)),
            link="c" * 64,
            turns=(1, 1),
            seqs=(1, 12),
            summary=Summary(facts=(SECRET,)),
            items=(Item(id="i1-1", kind=ItemKind.DENIAL, text=SECRET, turn=1),),
            closed=(Closing(id="i1-2", turn=1),),
            skills=("refunds",),
            forgotten=("visits",),
            before_tokens=900,
            after_tokens=300,
            usage=Usage(input_tokens=700, output_tokens=40),
            model="small",
            calls=1,
        ),
    ),
    (
        0,
        CompactionFailed(
            turn=4, code="bad_summary", detail="the summariser said nothing", usage=Usage(input_tokens=7), calls=2
        ),
    ),
    (
        0,
        ModelFailed(
            turn=1,
            call="c2",
            round=2,
            code="model_unavailable",
            detail="no route",
            retry_at_us=START_US + 3_753_000,
            next_model="other",
        ),
    ),
    (0, TurnFailed(turn=1, code="model_unavailable", detail="no route", note=text_block(SECRET))),
    (
        0,
        LateResult(call_id=PAY, name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=text_block(SECRET)),
    ),
    (0, LiveContextOrdered(job="live-2", reason=LiveReason.HAND, messages=4)),
    (
        0,
        LiveContextReplaced(
            job="live-2",
            words=SECRET,
            block=text_block(SECRET),
            messages=4,
            usage=Usage(input_tokens=90, output_tokens=6),
            model="small",
        ),
    ),
    (0, LiveContextFailed(job="live-3", code="bad_live_context", detail="the answer has no words")),
    (0, TurnCancelled(turn=2, reason="client", partial=(text_block(SECRET),), note=text_block(SECRET))),
    (7, TurnFinished(turn=3)),
    (0, TurnRefused(turn=4, detail="the model refused to answer", note=text_block(SECRET))),
    (
        0,
        MessageRetracted(
            turn=3, messages=(MessageId("m3"),), principal="ada", link="d" * 64, note=(text_block(SECRET),)
        ),
    ),
    (0, ConversationRenamed(title=SECRET, principal="ada")),
    (0, ConversationArchived(principal="ada")),
    (0, ConversationUnarchived(principal="ada")),
    (
        0,
        ConversationForked(
            source="c_0", before=MessageId("m1"), messages=(MessageId("m1"), MessageId("m2")), principal="ada"
        ),
    ),
)


def journal() -> list[JournalRecord]:
    """``JOURNAL`` numbered, each record as long after the one before as it says."""
    state, at_us = ConversationState(), START_US
    records: list[JournalRecord] = []
    for after_us, draft in JOURNAL:
        at_us += after_us
        records.extend(numbered(state, (draft,), at_us=at_us))
        state = ConversationState(seq=records[-1].seq, event=max(record.event for record in records))
    return records
