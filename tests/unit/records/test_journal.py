"""The journal's records as they lie on disk: what is written today is read for years."""

from typing import Any, get_args

import msgspec
import pytest

from tests.unit.records.golden_records import GOLDEN
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.ids import MessageId
from torpor.records.journal import (
    PUBLIC_RECORDS,
    AttemptStarted,
    ContextChanged,
    ConversationCreated,
    FlagsPinned,
    FlagsReturned,
    JournalRecord,
    LiveContextOrdered,
    ModelRequested,
    PreambleChanged,
    PreambleReturned,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.summary import ItemKind
from torpor.records.terms import Effect, FoldReason, LiveReason, Offer, Outcome, StepKind, WhenBusy


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
        (FoldReason, {"summary", "mechanical", "shortened", "everything", "withdrawn"}),
        (ItemKind, {"correction", "denial", "question", "proposal"}),
        (LiveReason, {"first", "messages", "age", "hand"}),
        (Offer, {"continue", "retry"}),
        (Outcome, {"succeeded", "failed", "denied", "never_started", "interrupted", "unknown"}),
    ],
)
def test_words_in_records_stay_what_they_are(enum: Any, values: set[str]) -> None:
    assert {word.value for word in enum} == values
