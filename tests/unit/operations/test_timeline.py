"""A journal as people read it."""

import msgspec
import pytest

from tests.unit.operations.example import SECRET, journal
from torpor.operations.timeline import Timeline, TimelineRow, duration, in_words


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
        "turn_failed": 1_752_000,
        "late_result": 251_000,
    }


def test_end_without_its_beginning_tells_no_time() -> None:
    ends = [record for record in journal() if record.seq > 7]

    assert [row.took_us for row in Timeline().rows(ends)] == [None] * len(ends)


def test_timeline_goes_on_over_several_pages() -> None:
    timeline = Timeline()
    records = journal()

    paged = [*timeline.rows(records[:6]), *timeline.rows(records[6:])]

    assert paged == rows()


def test_row_in_words_is_one_line() -> None:
    words = in_words(row_of("model_replied", rows()))

    assert words == (
        "    6  2025-11-30 10:53:21.500      +1.5 s  turn 1   model replied, tool_use, asks for pay"
        " (42 tokens in, 32 of them cached, 5 out), took 1.5 s"
    )


def test_content_stands_below_its_line() -> None:
    first, *rest = in_words(row_of("message_received", rows(content=True))).splitlines()

    assert first.endswith("2 characters replaced)")
    assert [line.strip() for line in rest] == [f"| {SECRET}"]


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
