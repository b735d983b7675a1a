"""What is done about a request before it is asked, as a table of every case."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.turns_told import called, plain, told, with_turn
from torpor.conversation.budget import PROFILES, Profile
from torpor.conversation.compaction import (
    Overflow,
    Window,
    can_shrink,
    fitted,
    is_foldable,
    kept_starts,
    long_results,
    next_fold,
    tight_limits,
)
from torpor.conversation.state import ConversationState, LoadedSkill
from torpor.conversation.summary import CompactionOptions
from torpor.records.blocks import canonical
from torpor.records.ids import CallId
from torpor.records.terms import FoldReason

OPTIONS = CompactionOptions(failures_max=2, cool_down_s=60.0, result_bytes=100)
WINDOW = Window(budget_tokens=1_000, reserve_tokens=100, has_summariser=True)
"""The threshold is 800, the limit 900."""
NO_MODEL = msgspec.structs.replace(WINDOW, has_summariser=False)
LONG = "x" * 1_000
SOME = " and so on" * 20
MANY = told(*(plain(number, text=SOME) for number in range(1, 6)))
FEW = told(*(plain(number, text=SOME) for number in range(1, 4)))
"""Two turns and the running one: nothing older."""
LONG_RESULT = told(plain(1, text=SOME), called(2, result=LONG), plain(3))
ALONE = told(plain(1))
ALONE_LONG = told(plain(1), pending={"a": LONG})
BETWEEN, OVER = 850, 950


def decided(
    state: ConversationState,
    tokens: int,
    *,
    window: Window = WINDOW,
    options: CompactionOptions = OPTIONS,
    view_bytes: int = 0,
    now_us: int = 0,
) -> FoldReason | Overflow | None:
    assert state.turn is not None
    return next_fold(
        state, state.turn, tokens=tokens, view_bytes=view_bytes, window=window, options=options, now_us=now_us
    )


def changed(state: ConversationState, **fields: Any) -> ConversationState:
    return msgspec.structs.replace(state, **fields)


@pytest.mark.parametrize(
    ("state", "tokens", "expected"),
    [
        pytest.param(MANY, 800, None, id="below the threshold"),
        pytest.param(MANY, 801, FoldReason.SUMMARY, id="over the threshold"),
        pytest.param(MANY, OVER, FoldReason.SUMMARY, id="over the limit"),
        pytest.param(FEW, BETWEEN, None, id="nothing older"),
        pytest.param(changed(MANY, is_measured=False), BETWEEN, None, id="not measured"),
        pytest.param(changed(MANY, is_measured=False), OVER, FoldReason.MECHANICAL, id="not measured, over the limit"),
        pytest.param(with_turn(MANY, has_fold_failed=True), BETWEEN, None, id="failed in this turn"),
        pytest.param(with_turn(MANY, has_fold_failed=True), OVER, FoldReason.MECHANICAL, id="failed, over the limit"),
        pytest.param(with_turn(MANY, is_too_long=True), 10, FoldReason.SUMMARY, id="the host says it is too long"),
        pytest.param(LONG_RESULT, OVER, FoldReason.SHORTENED, id="a long result and nothing older"),
        pytest.param(
            with_turn(LONG_RESULT, last_resort=FoldReason.SHORTENED),
            OVER,
            FoldReason.EVERYTHING,
            id="shortened and still over",
        ),
        pytest.param(FEW, OVER, FoldReason.EVERYTHING, id="nothing to shorten"),
        pytest.param(with_turn(FEW, is_too_long=True), 10, FoldReason.EVERYTHING, id="the host says so of few turns"),
        pytest.param(with_turn(FEW, last_resort=FoldReason.EVERYTHING), OVER, Overflow.TURN, id="all was tried"),
        pytest.param(ALONE, OVER, Overflow.TURN, id="one turn alone"),
        pytest.param(ALONE_LONG, OVER, FoldReason.SHORTENED, id="a long result of the open round"),
        pytest.param(
            with_turn(ALONE_LONG, last_resort=FoldReason.SHORTENED), OVER, Overflow.TURN, id="shortened, and alone"
        ),
    ],
)
def test_what_is_done_first(state: ConversationState, tokens: int, expected: FoldReason | Overflow | None) -> None:
    assert decided(state, tokens) == expected


@pytest.mark.parametrize(
    ("state", "tokens", "expected"),
    [
        pytest.param(MANY, 800, None, id="below the threshold"),
        pytest.param(MANY, BETWEEN, FoldReason.MECHANICAL, id="over the threshold"),
        pytest.param(changed(MANY, is_measured=False), BETWEEN, None, id="not measured"),
        pytest.param(MANY, OVER, FoldReason.MECHANICAL, id="over the limit"),
        pytest.param(FEW, BETWEEN, None, id="nothing older"),
        pytest.param(FEW, OVER, FoldReason.EVERYTHING, id="nothing older, over the limit"),
    ],
)
def test_what_is_done_where_no_model_folds(
    state: ConversationState, tokens: int, expected: FoldReason | Overflow | None
) -> None:
    assert decided(state, tokens, window=NO_MODEL) == expected


def fixed(tokens: int, *, turns: int = 5) -> ConversationState:
    return told(*(plain(number, text=SOME) for number in range(1, turns + 1)), preamble_bytes=4 * tokens)


@pytest.mark.parametrize("window", [WINDOW, NO_MODEL])
@pytest.mark.parametrize(
    ("state", "tokens", "expected"),
    [
        pytest.param(fixed(850), BETWEEN, None, id="it fits, so it is asked"),
        pytest.param(fixed(850), OVER, FoldReason.MECHANICAL, id="folding may still make it fit"),
        pytest.param(fixed(850, turns=1), OVER, Overflow.FIXED, id="nothing left"),
        pytest.param(fixed(901), OVER, Overflow.FIXED, id="it can never fit, and nothing is folded for it"),
    ],
)
def test_no_summary_is_asked_for_where_the_fixed_parts_alone_are_over_the_threshold(
    state: ConversationState, tokens: int, expected: FoldReason | Overflow | None, window: Window
) -> None:
    assert decided(state, tokens, window=window) == expected


def test_without_a_budget_nothing_is_ever_folded() -> None:
    assert decided(MANY, 10**9, window=Window()) is None


def test_the_threshold_is_never_above_the_limit() -> None:
    window = Window(budget_tokens=1_000, reserve_tokens=400, has_summariser=True)
    assert decided(MANY, 600, window=window) is None
    assert decided(MANY, 601, window=window) is FoldReason.SUMMARY


def test_a_reply_that_takes_most_of_the_window_leaves_half_of_it() -> None:
    assert Window(budget_tokens=1_000, reserve_tokens=950).limit_tokens == 500


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"messages_max": 10}, None),
        ({"messages_max": 9}, FoldReason.SUMMARY),
        ({"exchanges_max": 5}, None),
        ({"exchanges_max": 4}, FoldReason.SUMMARY),
        ({"conversation_tokens": 100}, None),
        ({"conversation_tokens": 99}, FoldReason.SUMMARY),
    ],
)
def test_the_limits_of_a_profile_lead_to_the_same_fold(limits: dict[str, int], expected: FoldReason | None) -> None:
    window = Window(budget_tokens=1_000, reserve_tokens=100, has_summariser=True, **limits)
    assert decided(MANY, 10, window=window, view_bytes=400) is expected
    without = msgspec.structs.replace(window, has_summariser=False)
    assert decided(MANY, 10, window=without, view_bytes=400) is (FoldReason.MECHANICAL if expected else None)


def test_what_is_told_for_a_turn_is_not_counted_as_history() -> None:
    window = Window(budget_tokens=1_000, conversation_tokens=99, has_summariser=True)
    state = with_turn(MANY, signal_bytes=20, turn_only_bytes=380)
    assert decided(state, 10, window=window, view_bytes=796) is None
    assert decided(state, 10, window=window, view_bytes=797) is FoldReason.SUMMARY


def test_the_last_two_turns_win_over_the_limits_of_a_profile() -> None:
    window = Window(budget_tokens=1_000, messages_max=1, exchanges_max=1, conversation_tokens=1, has_summariser=True)
    assert decided(FEW, 10, window=window, view_bytes=400) is None


@pytest.mark.parametrize(
    ("limits", "turns"),
    [
        ({"exchanges_max": 1}, [5]),
        ({"exchanges_max": 3}, [5]),
        ({"exchanges_max": 12}, [13]),
        ({"messages_max": 1}, [5]),
        ({"messages_max": 6}, [5]),
        ({"messages_max": 50}, [26]),
        ({"conversation_tokens": 100}, [5]),
    ],
)
def test_limits_that_the_turns_that_stay_are_beyond_do_not_ask_for_a_summary_every_turn(
    limits: dict[str, int], turns: list[int]
) -> None:
    window = Window(budget_tokens=100_000, reserve_tokens=100, has_summariser=True, **limits)

    def is_due(count: int) -> bool:
        state = told(*(plain(number, text=SOME) for number in range(1, count + 1)))
        return decided(state, 10, window=window, view_bytes=state.view.size_bytes) is not None

    assert [count for count in range(1, 40) if is_due(count)][:1] == turns


def test_limits_too_tight_for_any_conversation_are_told() -> None:
    def told_of(**limits: int) -> list[str]:
        return [doubt.partition(" ")[0] for doubt in tight_limits(Profile(**limits), CompactionOptions())]

    assert told_of(exchanges_max=3, messages_max=6, conversation_tokens=359) == [
        "exchanges_max",
        "messages_max",
        "conversation_tokens",
    ]
    assert told_of(exchanges_max=4, messages_max=7, conversation_tokens=360) == []
    assert [list(tight_limits(profile, CompactionOptions())) for profile in PROFILES.values()] == [[], [], []]


def test_after_some_failures_the_summariser_is_left_alone_for_a_while() -> None:
    failing = changed(MANY, fold_failures=1, fold_failed_us=0)
    assert decided(failing, BETWEEN) is FoldReason.SUMMARY
    broken = changed(MANY, fold_failures=2, fold_failed_us=0)
    assert decided(broken, BETWEEN, now_us=59_999_999) is None
    assert decided(broken, OVER, now_us=59_999_999) is FoldReason.MECHANICAL
    assert decided(broken, BETWEEN, now_us=60_000_000) is FoldReason.SUMMARY


def test_a_failure_in_the_future_is_none_that_anybody_waits_for() -> None:
    ahead = changed(MANY, fold_failures=2, fold_failed_us=31_536_000_000_000)
    assert decided(ahead, BETWEEN, now_us=0) is FoldReason.SUMMARY
    assert decided(ahead, BETWEEN, now_us=31_536_000_000_000) is None


def test_the_turns_that_stay_are_the_last_two_and_the_running_one() -> None:
    assert [start.turn for start in kept_starts(MANY)] == [3, 4, 5]
    assert is_foldable(MANY)
    assert not is_foldable(FEW)
    between_turns = changed(MANY, turn=None)
    assert [start.turn for start in kept_starts(between_turns)] == [4, 5]
    assert is_foldable(changed(between_turns, starts=MANY.starts[:3]))
    assert not is_foldable(changed(between_turns, starts=MANY.starts[:2]))


def test_what_is_short_is_not_worth_a_summary() -> None:
    short = told(*map(plain, range(1, 6)))
    assert not is_foldable(short)
    assert not is_foldable(told(plain(1), plain(2)), kept=0)
    assert decided(short, BETWEEN) is None
    assert decided(told(plain(1), plain(2)), OVER) is Overflow.TURN
    at_the_bound = msgspec.structs.replace(short.starts[2], size_bytes=400)
    assert not is_foldable(changed(short, starts=(*short.starts[:2], at_the_bound, *short.starts[3:])))
    above = msgspec.structs.replace(at_the_bound, size_bytes=401)
    assert is_foldable(changed(short, starts=(*short.starts[:2], above, *short.starts[3:])))


def test_long_results_are_those_in_the_view_and_of_the_open_round() -> None:
    picture = canonical({"type": "tool_result", "tool_use_id": "p", "content": [{"type": "image", "data": LONG}]})
    state = told(
        called(1, result=LONG),
        called(2, result="short"),
        called(3, result=LONG, call_id="skill"),
        called(4, result=picture),
        plain(5),
        pending={"a": LONG, "b": "short"},
        skills=(LoadedSkill(key="refunds", digest="d", call_id=CallId("skill")),),
    )
    found = long_results(state, bytes_max=100)
    assert {call_id: turn for call_id, (turn, _) in found.items()} == {"call_1": 1, "p": 4, "a": 5}
    assert long_results(changed(state, turn=None), bytes_max=100).keys() == {"call_1", "p"}
    assert not long_results(state, bytes_max=10_000)


def test_a_request_can_be_made_smaller_while_there_are_other_turns_or_long_results() -> None:
    assert can_shrink(FEW, OPTIONS)
    assert can_shrink(ALONE_LONG, OPTIONS)
    assert not can_shrink(ALONE, OPTIONS)


def test_caps_of_a_summary_shrink_with_the_window() -> None:
    options = CompactionOptions()
    assert fitted(options, Window(), fixed_bytes=10**6) == options
    assert fitted(options, Window(budget_tokens=200_000, reserve_tokens=4_096), fixed_bytes=40_000) == options
    window = Window(budget_tokens=8_000, reserve_tokens=1_800, conversation_tokens=1_500)
    small = fitted(options, window, fixed_bytes=4_800)
    assert (small.summary_tokens, small.items_tokens, small.skill_tokens, small.skills_tokens) == (250, 500, 250, 250)
    assert fitted(options, window, fixed_bytes=4 * 5_600).summary_tokens == 100
    assert fitted(options, window, fixed_bytes=10**6).summary_tokens == 1


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_summary_never_takes_most_of_what_a_conversation_may_take(
    budget: int, reserve: int, allotment: int, fixed_bytes: int
) -> None:
    window = Window(budget_tokens=budget, reserve_tokens=reserve, conversation_tokens=allotment)
    options = fitted(CompactionOptions(), window, fixed_bytes=fixed_bytes)
    room = window.limit_tokens - fixed_bytes // 4
    room = min(room, allotment or room)
    assert options.summary_tokens >= 1
    assert options.items_tokens >= 1
    if room >= 6:
        assert options.summary_tokens + options.skills_tokens + options.items_tokens <= room * 2 / 3
