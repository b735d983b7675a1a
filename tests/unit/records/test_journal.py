"""The journal's records as they lie on disk: what is written today is read for years."""

from typing import Any, get_args

import msgspec
import pytest

from torpor.records.blocks import canonical, text_block
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
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
    Effect,
    FlagDecision,
    FlagsPinned,
    FlagsReturned,
    FoldReason,
    JournalRecord,
    LateResult,
    LiveContextFailed,
    LiveContextOrdered,
    LiveContextReplaced,
    LiveReason,
    MessageReceived,
    MessageRetracted,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    Offer,
    Outcome,
    PreambleChanged,
    PreambleReturned,
    SkillLoaded,
    StepKind,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
    Usage,
    WhenBusy,
)
from torpor.records.summary import Closing, Item, ItemKind, Summary

HI = text_block("hi")
CALL = CallId("call_1")
HI_FIELDS = {"text": "hi", "type": "text"}

GOLDEN: list[tuple[JournalRecord, dict[str, Any]]] = [
    (
        ConversationCreated(seq=1, at_us=7, agent="clerk", title="errands"),
        {"kind": "conversation_created", "agent": "clerk", "seq": 1, "at_us": 7, "title": "errands"},
    ),
    (
        ConversationRenamed(seq=2, event=1, title="more errands", principal="ann"),
        {"kind": "conversation_renamed", "title": "more errands", "principal": "ann", "seq": 2, "event": 1},
    ),
    (
        ConversationArchived(seq=3, event=2, principal="ann"),
        {"kind": "conversation_archived", "principal": "ann", "seq": 3, "event": 2},
    ),
    (
        ConversationUnarchived(seq=4, event=3, principal="ann"),
        {"kind": "conversation_unarchived", "principal": "ann", "seq": 4, "event": 3},
    ),
    (
        ConversationForked(
            seq=5,
            event=4,
            source="c_0",
            before=MessageId("m"),
            messages=(MessageId("m"), MessageId("n")),
            principal="ann",
        ),
        {
            "kind": "conversation_forked",
            "source": "c_0",
            "before": "m",
            "messages": ["m", "n"],
            "principal": "ann",
            "seq": 5,
            "event": 4,
        },
    ),
    (
        MessageReceived(
            seq=2,
            at_us=7,
            event=1,
            message_id=MessageId("m"),
            principal="ann",
            blocks=(HI,),
            when_busy=WhenBusy.STEER,
            cleaned=1,
        ),
        {
            "kind": "message_received",
            "message_id": "m",
            "principal": "ann",
            "blocks": [HI_FIELDS],
            "seq": 2,
            "at_us": 7,
            "event": 1,
            "when_busy": "steer",
            "cleaned": 1,
        },
    ),
    (
        MessageRetracted(seq=12, turn=1, event=8, messages=(MessageId("m"),), principal="ann", link="ab", note=(HI,)),
        {
            "kind": "message_retracted",
            "messages": ["m"],
            "principal": "ann",
            "seq": 12,
            "turn": 1,
            "event": 8,
            "link": "ab",
            "note": [HI_FIELDS],
        },
    ),
    (
        ContextChanged(
            seq=16,
            at_us=7,
            event=11,
            context=WorkingContext(
                record=SelectedRecord(type="patient", id="p/7", version="3", text="Ann", label="personal"),
                screen=ContextPart(text="calendar", label="public"),
                role=ContextPart(text="clerk"),
                plan=ContextPart(text="move it"),
                actions=(ContextPart(text="opened"),),
            ),
            version=2,
            principal="ann",
        ),
        {
            "kind": "context_changed",
            "context": {
                "record": {"type": "patient", "id": "p/7", "version": "3", "text": "Ann", "label": "personal"},
                "screen": {"text": "calendar", "label": "public"},
                "role": {"text": "clerk"},
                "plan": {"text": "move it"},
                "actions": [{"text": "opened"}],
            },
            "version": 2,
            "principal": "ann",
            "seq": 16,
            "at_us": 7,
            "event": 11,
        },
    ),
    (
        FlagsPinned(
            seq=17,
            digest="f",
            decisions=(
                FlagDecision(key="memory", value=True, variant="on", reason="SPLIT"),
                FlagDecision(key="tool.pay", value=False),
            ),
        ),
        {
            "kind": "flags_pinned",
            "digest": "f",
            "decisions": [
                {"key": "memory", "value": True, "variant": "on", "reason": "SPLIT"},
                {"key": "tool.pay", "value": False},
            ],
            "seq": 17,
        },
    ),
    (FlagsReturned(seq=17, digest="f"), {"kind": "flags_returned", "digest": "f", "seq": 17}),
    (
        PreambleChanged(seq=3, digest="d", body=canonical({"model": "m"})),
        {"kind": "preamble_changed", "digest": "d", "body": {"model": "m"}, "seq": 3},
    ),
    (PreambleReturned(seq=3, digest="d"), {"kind": "preamble_returned", "digest": "d", "seq": 3}),
    (
        TurnPrepared(
            seq=4,
            turn=1,
            event=2,
            messages=(MessageId("m"),),
            signal=(HI,),
            turn_only=(HI,),
            sections={"envelope": 5},
            withheld=("secret",),
            labels=("internal",),
            policies=("refunds@3",),
            live=3,
        ),
        {
            "kind": "turn_prepared",
            "messages": ["m"],
            "signal": [HI_FIELDS],
            "turn_only": [HI_FIELDS],
            "sections": {"envelope": 5},
            "withheld": ["secret"],
            "labels": ["internal"],
            "policies": ["refunds@3"],
            "live": 3,
            "seq": 4,
            "turn": 1,
            "event": 2,
        },
    ),
    (
        AttemptStarted(seq=5, turn=1, step=StepKind.CALL_MODEL, round=1, attempt=2),
        {"kind": "attempt_started", "step": "call_model", "round": 1, "attempt": 2, "seq": 5, "turn": 1},
    ),
    (
        ModelRequested(
            seq=6,
            turn=1,
            call="1-1-1",
            round=1,
            preamble="d",
            link="l",
            sections={"tools": 3},
            joined=(MessageId("s"),),
            purpose="turn",
            model="other",
            estimated_tokens=9,
            budget_tokens=8_000,
            over=("conversation",),
            live="e",
        ),
        {
            "kind": "model_requested",
            "call": "1-1-1",
            "round": 1,
            "preamble": "d",
            "link": "l",
            "sections": {"tools": 3},
            "seq": 6,
            "turn": 1,
            "joined": ["s"],
            "model": "other",
            "estimated_tokens": 9,
            "budget_tokens": 8_000,
            "over": ["conversation"],
            "live": "e",
        },
    ),
    (
        ModelReplied(
            seq=7,
            turn=1,
            event=3,
            call="1-1-1",
            round=1,
            blocks=(HI,),
            stop_reason="tool_use",
            usage=Usage(input_tokens=2, cache_read_input_tokens=5),
            model="m",
            request_id="r",
            unusable={"a": "cut short"},
            dropped=("tool_use",),
            note=(HI,),
        ),
        {
            "kind": "model_replied",
            "call": "1-1-1",
            "round": 1,
            "blocks": [HI_FIELDS],
            "stop_reason": "tool_use",
            "seq": 7,
            "turn": 1,
            "event": 3,
            "usage": {"input_tokens": 2, "cache_read_input_tokens": 5},
            "model": "m",
            "request_id": "r",
            "unusable": {"a": "cut short"},
            "dropped": ["tool_use"],
            "note": [HI_FIELDS],
        },
    ),
    (
        ModelFailed(
            seq=8,
            turn=1,
            event=4,
            call="1-1-1",
            round=1,
            code="model_unavailable",
            detail="overloaded",
            retry_at_us=9,
            next_model="other",
        ),
        {
            "kind": "model_failed",
            "call": "1-1-1",
            "round": 1,
            "code": "model_unavailable",
            "seq": 8,
            "turn": 1,
            "event": 4,
            "detail": "overloaded",
            "retry_at_us": 9,
            "next_model": "other",
        },
    ),
    (
        ToolStarted(seq=9, turn=1, event=4, call_id=CALL, name="pay", effect=Effect.WRITE, idempotency_key="k"),
        {
            "kind": "tool_started",
            "call_id": "call_1",
            "name": "pay",
            "effect": "write",
            "idempotency_key": "k",
            "seq": 9,
            "turn": 1,
            "event": 4,
        },
    ),
    (
        ToolFinished(
            seq=10, turn=1, event=5, call_id=CALL, name="pay", outcome=Outcome.UNKNOWN, block=HI, handle="h", cleaned=2
        ),
        {
            "kind": "tool_finished",
            "call_id": "call_1",
            "name": "pay",
            "outcome": "unknown",
            "block": HI_FIELDS,
            "seq": 10,
            "turn": 1,
            "event": 5,
            "handle": "h",
            "cleaned": 2,
        },
    ),
    (
        ContextReplaced(
            seq=19,
            turn=9,
            event=13,
            reason=FoldReason.SUMMARY,
            generation=2,
            kept_from=7,
            head=(HI, HI),
            link="l",
            turns=(1, 6),
            seqs=(1, 80),
            summary=Summary(facts=("one",), decisions=("two",), entities=("Ann: a patient",)),
            items=(Item(id="i1-1", kind=ItemKind.DENIAL, text="never by mail", turn=3),),
            closed=(Closing(id="i1-2", turn=5),),
            left_out=1,
            left_out_turns=(2, 4),
            skills=("refunds",),
            forgotten=("visits",),
            shortened={"call_1": HI},
            before_tokens=900,
            after_tokens=300,
            usage=Usage(input_tokens=700, output_tokens=40),
            model="small",
            calls=2,
        ),
        {
            "kind": "context_replaced",
            "reason": "summary",
            "generation": 2,
            "kept_from": 7,
            "head": [HI_FIELDS, HI_FIELDS],
            "link": "l",
            "seq": 19,
            "turn": 9,
            "event": 13,
            "turns": [1, 6],
            "seqs": [1, 80],
            "summary": {"facts": ["one"], "decisions": ["two"], "entities": ["Ann: a patient"]},
            "items": [{"id": "i1-1", "kind": "denial", "text": "never by mail", "turn": 3}],
            "closed": [{"id": "i1-2", "turn": 5}],
            "left_out": 1,
            "left_out_turns": [2, 4],
            "skills": ["refunds"],
            "forgotten": ["visits"],
            "shortened": {"call_1": HI_FIELDS},
            "before_tokens": 900,
            "after_tokens": 300,
            "usage": {"input_tokens": 700, "output_tokens": 40},
            "model": "small",
            "calls": 2,
        },
    ),
    (
        CompactionFailed(
            seq=20, turn=9, event=14, code="deadline", detail="too late", usage=Usage(input_tokens=7), calls=2
        ),
        {
            "kind": "compaction_failed",
            "code": "deadline",
            "detail": "too late",
            "seq": 20,
            "turn": 9,
            "event": 14,
            "usage": {"input_tokens": 7},
            "calls": 2,
        },
    ),
    (
        LiveContextOrdered(seq=21, at_us=7, job="live-3", reason=LiveReason.AGE, messages=40),
        {"kind": "live_context_ordered", "seq": 21, "at_us": 7, "job": "live-3", "reason": "age", "messages": 40},
    ),
    (
        LiveContextReplaced(
            seq=22,
            event=15,
            job="live-3",
            words="hi",
            block=HI,
            messages=40,
            usage=Usage(input_tokens=7),
            model="small",
        ),
        {
            "kind": "live_context_replaced",
            "seq": 22,
            "event": 15,
            "job": "live-3",
            "words": "hi",
            "block": HI_FIELDS,
            "messages": 40,
            "usage": {"input_tokens": 7},
            "model": "small",
        },
    ),
    (
        LiveContextFailed(
            seq=23, event=16, job="live-4", code="deadline", detail="too late", usage=Usage(input_tokens=7)
        ),
        {
            "kind": "live_context_failed",
            "seq": 23,
            "event": 16,
            "job": "live-4",
            "code": "deadline",
            "detail": "too late",
            "usage": {"input_tokens": 7},
        },
    ),
    (
        SkillLoaded(
            seq=18,
            turn=1,
            event=12,
            call_id=CALL,
            skill="refunds",
            digest="d",
            allowed_tools=("pay",),
            tokens=300,
        ),
        {
            "kind": "skill_loaded",
            "call_id": "call_1",
            "skill": "refunds",
            "digest": "d",
            "allowed_tools": ["pay"],
            "tokens": 300,
            "seq": 18,
            "turn": 1,
            "event": 12,
        },
    ),
    (
        LateResult(seq=11, event=6, call_id=CALL, name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=HI),
        {
            "kind": "late_result",
            "call_id": "call_1",
            "name": "pay",
            "of_turn": 1,
            "outcome": "succeeded",
            "note": HI_FIELDS,
            "seq": 11,
            "event": 6,
        },
    ),
    (TurnFinished(seq=12, turn=1, event=7), {"kind": "turn_finished", "seq": 12, "turn": 1, "event": 7}),
    (
        TurnCancelled(seq=13, turn=1, event=8, reason="client", note=HI, partial=(HI,)),
        {
            "kind": "turn_cancelled",
            "reason": "client",
            "note": HI_FIELDS,
            "seq": 13,
            "turn": 1,
            "event": 8,
            "partial": [HI_FIELDS],
        },
    ),
    (
        TurnFailed(seq=14, turn=1, event=9, code="crashed", detail="why", note=HI, offers=(Offer.RETRY,)),
        {
            "kind": "turn_failed",
            "code": "crashed",
            "detail": "why",
            "note": HI_FIELDS,
            "seq": 14,
            "turn": 1,
            "event": 9,
            "offers": ["retry"],
        },
    ),
    (
        TurnRefused(seq=15, turn=1, event=10, detail="no", note=HI),
        {"kind": "turn_refused", "detail": "no", "note": HI_FIELDS, "seq": 15, "turn": 1, "event": 10},
    ),
]


def name_of(value: object) -> str:
    return type(value).__name__


@pytest.mark.parametrize(("record", "fields"), GOLDEN, ids=name_of)
def test_a_record_is_written_as_it_always_was(record: JournalRecord, fields: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(record)) == fields


@pytest.mark.parametrize(("record", "fields"), GOLDEN, ids=name_of)
def test_a_record_written_long_ago_is_read_as_it_was_meant(record: JournalRecord, fields: dict[str, Any]) -> None:
    assert msgspec.json.decode(msgspec.json.encode(fields), type=JournalRecord) == record


@pytest.mark.parametrize(("record", "fields"), GOLDEN, ids=name_of)
def test_a_field_of_a_later_version_is_ignored(record: JournalRecord, fields: dict[str, Any]) -> None:
    later = msgspec.json.encode(fields | {"of_a_later_version": [1, {"a": 2}]})
    assert msgspec.json.decode(later, type=JournalRecord) == record


def test_a_field_of_a_later_version_inside_a_context_is_ignored() -> None:
    context = b'{"record":{"type":"patient","id":"7","mood":1},"screen":{"text":"a","mood":1},"mood":1}'
    written = b'{"kind":"context_changed","context":' + context + b',"version":1,"principal":"ann"}'
    record = msgspec.json.decode(written, type=JournalRecord)
    assert isinstance(record, ContextChanged)
    assert record.context == WorkingContext(record=SelectedRecord(type="patient", id="7"), screen=ContextPart(text="a"))


def test_a_turn_that_was_prepared_before_there_were_signals_is_read_as_one_without() -> None:
    written = b'{"kind":"turn_prepared","messages":["m"],"seq":4,"turn":1,"event":2}'
    record = TurnPrepared(seq=4, turn=1, event=2, messages=(MessageId("m"),))
    assert msgspec.json.decode(written, type=JournalRecord) == record
    assert msgspec.json.decode(msgspec.json.encode(record)) == msgspec.json.decode(written)


def test_there_is_a_golden_record_of_every_kind() -> None:
    assert [type(record) for record, _ in GOLDEN] == list(get_args(JournalRecord))


def test_a_kind_of_a_later_version_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="Invalid value 'turn_rewound'"):
        msgspec.json.decode(b'{"kind":"turn_rewound","seq":1}', type=JournalRecord)


def test_a_record_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        TurnFinished().seq = 3  # type: ignore[misc]  # that is the point


def test_public_records_are_those_that_clients_hear_of() -> None:
    private = {
        ConversationCreated,
        FlagsPinned,
        FlagsReturned,
        PreambleChanged,
        PreambleReturned,
        AttemptStarted,
        ModelRequested,
        LiveContextOrdered,
    }
    assert set(PUBLIC_RECORDS) == set(get_args(JournalRecord)) - private


@pytest.mark.parametrize(
    ("enum", "values"),
    [
        (WhenBusy, {"queue", "steer", "interrupt", "reject"}),
        (Effect, {"read", "write"}),
        (StepKind, {"call_model", "run_tools", "compact"}),
        (FoldReason, {"summary", "mechanical", "shortened", "everything"}),
        (ItemKind, {"correction", "denial", "question", "proposal"}),
        (LiveReason, {"first", "messages", "age", "hand"}),
        (Offer, {"continue", "retry"}),
        (Outcome, {"succeeded", "failed", "denied", "never_started", "interrupted", "unknown"}),
    ],
)
def test_words_in_records_stay_what_they_are(enum: Any, values: set[str]) -> None:
    assert {word.value for word in enum} == values
