"""A journal as people read it."""

import msgspec
import pytest

from tests.unit.operations.example import SECRET, journal
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.operations.timeline import Estimates, Timeline, TimelineRow, duration, estimates_in_words, in_words
from torpor.records.bounds import MOMENT_MAX_US
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    CompactionFailed,
    ConversationCreated,
    JournalRecord,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    SubagentFinished,
    SubagentStarted,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import Outcome, Usage


def rows(*, content: bool = False) -> list[TimelineRow]:
    return list(Timeline(content=content).rows(journal()))


def row_of(kind: str, found: list[TimelineRow]) -> TimelineRow:
    return next(row for row in found if row.kind == kind)


def test_every_record_becomes_one_row_in_order() -> None:
    assert [row.seq for row in rows()] == [record.seq for record in journal()]


def test_what_was_said_stays_out_unless_it_is_asked_for() -> None:
    assert SECRET not in msgspec.json.encode(rows()).decode()
    assert SECRET in (row_of("message_received", rows(content=True)).content or "")


def test_row_tells_how_long_after_the_record_before_it_came() -> None:
    found = rows()

    assert found[0].after_us == 0
    assert row_of("model_replied", found).after_us == 1_500_000


def test_replies_tools_and_turns_tell_how_long_they_took() -> None:
    took = {row.kind: row.took_us for row in rows() if row.took_us is not None}

    assert took == {
        "model_replied": 1_500_000,
        "tool_finished": 251_000,
        "subagent_finished": 0,
        "turn_failed": 1_752_000,
        "late_result": 251_000,
    }


def test_end_without_its_beginning_tells_no_time() -> None:
    ends = [record for record in journal() if record.seq > 11 and not isinstance(record, SubagentStarted)]

    assert [row.took_us for row in Timeline().rows(ends)] == [None] * len(ends)


def spent_by(*records: JournalRecord) -> TimelineRow:
    """The last row of a turn that did this and was answered."""
    prepared = TurnPrepared(turn=1, messages=(MessageId("m"),))
    return told(prepared, *records, TurnFinished(turn=1))[1][-1]


def dug(tokens: int, *, child: str = "a-1", turn: int = 1) -> SubagentFinished:
    return SubagentFinished(
        turn=turn,
        call_id=CallId("a"),
        name="digger",
        child=child,
        outcome=Outcome.SUCCEEDED,
        usage=Usage(input_tokens=tokens, output_tokens=2),
    )


def test_the_end_of_a_turn_tells_what_it_used_with_its_sub_agents() -> None:
    row = spent_by(answered("c1", input_tokens=10, cache_read_input_tokens=5), dug(100), dug(200, child="a-2"))

    assert row.turn_usage == Usage(input_tokens=310, cache_read_input_tokens=5, output_tokens=4)
    assert row.subagents_usage == Usage(input_tokens=300, output_tokens=4)
    assert in_words(row).endswith(
        "turn finished, took 0 us, 315 tokens in and 4 out in all, 300 tokens in and 4 out of them by sub-agents"
    )


def test_a_turn_without_sub_agents_is_told_in_words_without_them() -> None:
    row = spent_by(answered("c1", input_tokens=10))

    assert (row.turn_usage, row.subagents_usage) == (Usage(input_tokens=10), None)
    assert in_words(row).endswith("turn finished, took 0 us")


def test_a_summary_is_a_part_of_what_its_turn_used() -> None:
    row = spent_by(CompactionFailed(turn=1, code="bad_summary", detail="", usage=Usage(output_tokens=7)))

    assert row.turn_usage == Usage(output_tokens=7)


def test_what_ends_behind_its_turn_is_no_part_of_the_next_one() -> None:
    prepared = TurnPrepared(turn=2, messages=(MessageId("m"),))
    _, found = told(prepared, dug(100, turn=1), TurnFinished(turn=2))

    assert (found[-1].turn_usage, found[-1].subagents_usage) == (Usage(), None)


def test_the_end_of_a_turn_whose_beginning_was_not_seen_tells_no_usage() -> None:
    _, found = told(answered("c1", input_tokens=10), TurnFinished(turn=1))

    assert found[-1].turn_usage is None


def test_timeline_goes_on_over_several_pages() -> None:
    timeline = Timeline()
    records = journal()

    paged = [*timeline.rows(records[:6]), *timeline.rows(records[6:])]

    assert paged == rows()


def test_row_in_words_is_one_line() -> None:
    words = in_words(row_of("model_replied", rows()))

    assert words == (
        "   10  2025-11-30 10:53:21.500      +1.5 s  turn 1   model replied, tool_use, asks for pay"
        " (42 tokens in, 32 of them cached, 5 out), took 1.5 s"
    )


def test_content_stands_below_its_line() -> None:
    first, *rest = in_words(row_of("message_received", rows(content=True))).splitlines()

    assert first.endswith("2 characters replaced)")
    assert [line.strip() for line in rest] == [f"| {SECRET}"]


def asked(call: str, tokens: int) -> ModelRequested:
    return ModelRequested(turn=1, call=call, round=1, preamble="p", link="l", sections={}, estimated_tokens=tokens)


def answered(call: str, **usage: int) -> ModelReplied:
    return ModelReplied(turn=1, call=call, round=1, blocks=(), stop_reason="end_turn", usage=Usage(**usage))


def told(*records: JournalRecord) -> tuple[Timeline, list[TimelineRow]]:
    timeline = Timeline()
    return timeline, list(timeline.rows(numbered(ConversationState(), records, at_us=0)))


def test_reply_tells_how_far_the_estimate_of_its_request_was_off_all_that_was_counted() -> None:
    _, found = told(asked("c1", 120), answered("c1", input_tokens=10, cache_read_input_tokens=90))

    assert [(row.estimated_tokens, row.estimate_error) for row in found] == [(None, None), (120, 0.2)]
    assert in_words(found[1]).endswith("(100 tokens in, 90 of them cached, 0 out), 120 estimated (+20.0%), took 0 us")


def test_median_error_is_that_of_all_requests_whatever_their_signs() -> None:
    timeline, _ = told(
        *(asked("c1", 90), answered("c1", input_tokens=100)),
        *(asked("c2", 101), answered("c2", input_tokens=100)),
        *(asked("c3", 102), answered("c3", cache_creation_input_tokens=100)),
    )

    estimates = timeline.estimates()
    assert estimates == Estimates(requests=3, median_error=0.02)
    assert estimates_in_words(estimates) == "tokens estimated for 3 requests, median error 2.0%"
    assert estimates_in_words(Estimates(requests=1, median_error=0.1)).startswith("tokens estimated for 1 request,")


def test_request_that_nobody_estimated_counted_or_answered_has_no_error() -> None:
    timeline, found = told(
        *(asked("c1", 0), answered("c1", input_tokens=100)),
        *(asked("c2", 100), answered("c2")),
        *(asked("c3", 100), ModelFailed(turn=1, call="c3", round=1, code="model_unavailable", detail="no route")),
        answered("c4", input_tokens=100),
    )

    assert {row.estimate_error for row in found} == {None}
    assert timeline.estimates() is None


@pytest.mark.parametrize(
    ("us", "words"),
    [
        (0, "0 us"),
        (999, "999 us"),
        (1_234, "1.23 ms"),
        (999_499, "999 ms"),
        (999_500, "1 s"),
        (59_900_000, "59.9 s"),
        (59_960_000, "1 min 00 s"),
        (3_599_000_000, "59 min 59 s"),
        (7_260_000_000, "2 h 01 min"),
    ],
)
def test_duration_has_three_digits_and_a_unit(us: int, words: str) -> None:
    assert duration(us) == words


@pytest.mark.parametrize("at_us", [-(2**70), -1, MOMENT_MAX_US + 1, 2**63, 10**400])
def test_a_moment_that_no_calendar_has_is_told_as_a_number(at_us: int) -> None:
    records = (ConversationCreated(seq=1, agent="a"), ConversationCreated(seq=2, agent="a", at_us=at_us))
    first, second = map(in_words, Timeline().rows(records))

    assert " 1970-01-01 00:00:00.000 " in first
    assert f" {at_us} us " in second
    assert " 9999-12-31 23:59:59.999 " in in_words(
        next(Timeline().rows([msgspec.structs.replace(records[0], at_us=MOMENT_MAX_US)]))
    )
