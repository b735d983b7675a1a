"""How long an actor that crashed waits, and when it is given up."""

import msgspec
import pytest

from torpor.records.ids import ConversationKey
from torpor.supervisor.crashes import Crashes, Verdict
from torpor.supervisor.options import SupervisorOptions

KEY = ConversationKey("acme", "ann", "c_1")
OTHER = ConversationKey("acme", "ann", "c_2")
OPTIONS = SupervisorOptions(
    restart_backoff_s=1.0, restart_backoff_max_s=8.0, restarts_max=6, crashes_max=4, crash_window_s=60.0
)


def crashes(*, chance: float = 0.5, options: SupervisorOptions = OPTIONS) -> Crashes:
    return Crashes(options, chance=lambda: chance)


def add(
    known: Crashes,
    *,
    at_s: float = 0.0,
    key: ConversationKey = KEY,
    has_progressed: bool = False,
    is_own: bool = True,
) -> Verdict:
    return known.add(key, now_s=at_s, has_progressed=has_progressed, is_own=is_own)


def test_the_pause_doubles_up_to_its_bound_and_begins_anew_with_progress() -> None:
    known = crashes()
    pauses = [add(known, is_own=False).pause_s for _ in range(5)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert add(known, is_own=False, has_progressed=True).pause_s == 1.0


@pytest.mark.parametrize(("chance", "pause_s"), [(0.0, 0.75), (0.5, 1.0), (0.999, 1.2495)])
def test_the_pause_is_spread_by_a_quarter_either_way(chance: float, pause_s: float) -> None:
    assert add(crashes(chance=chance)).pause_s == pytest.approx(pause_s)


def test_no_number_of_crashes_is_too_large_for_the_pause() -> None:
    known = crashes(options=msgspec.structs.replace(OPTIONS, restarts_max=10_000, crashes_max=10_000))
    assert [add(known).pause_s for _ in range(2_000)][-1] == 8.0


def test_crashes_in_a_row_beyond_their_bound_are_given_up() -> None:
    known = crashes(options=msgspec.structs.replace(OPTIONS, restarts_max=2))
    assert [add(known).given_up for _ in range(3)] == ["", "", "3 crashes in a row"]


def test_crashes_within_the_window_are_given_up_whatever_was_committed_between_them() -> None:
    known = crashes()
    told = [add(known, at_s=at_s, has_progressed=True).given_up for at_s in (0.0, 20.0, 40.0, 60.0)]
    assert told == ["", "", "", "4 crashes within 60 s"]


def test_crashes_that_are_farther_apart_never_are() -> None:
    known = crashes()
    assert {add(known, at_s=21.0 * number, has_progressed=True).given_up for number in range(50)} == {""}


def test_failures_of_the_store_lengthen_the_pause_and_give_up_nobody() -> None:
    known = crashes()
    verdicts = [add(known, is_own=False) for _ in range(20)]
    assert verdicts[-1] == Verdict(in_a_row=20, pause_s=8.0)
    assert add(known, has_progressed=True).given_up == ""


def test_one_that_came_to_rest_has_no_row_any_more_and_its_crashes_still_count() -> None:
    known = crashes()
    for at_s in (0.0, 1.0, 2.0):
        add(known, at_s=at_s)
    known.rested(KEY)
    verdict = add(known, at_s=3.0)
    assert (verdict.in_a_row, verdict.given_up) == (1, "4 crashes within 60 s")


def test_one_that_is_forgotten_begins_anew_and_others_do_not() -> None:
    known = crashes()
    for key in (KEY, OTHER) * 3:
        add(known, key=key)
    known.forget(KEY)
    known.rested(ConversationKey("acme", "ann", "never crashed"))
    assert (add(known).in_a_row, add(known, key=OTHER).given_up) == (1, "4 crashes within 60 s")


def test_what_cannot_count_any_more_is_not_remembered() -> None:
    known = crashes()
    for number in range(1_000):
        add(known, at_s=float(number), key=ConversationKey("acme", "ann", f"c_{number}"))
    assert len(known) == 61
