"""When a model call is asked again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.retry import RetryOptions, pause_s

OPTIONS = RetryOptions(retries_max=4, base_s=1.0, pause_max_s=5.0, retry_after_max_s=60.0)


def pause(failures: int, *, retry_after_s: float | None = None, jitter: float = 0.0) -> float | None:
    return pause_s(OPTIONS, failures=failures, retry_after_s=retry_after_s, jitter=jitter)


def test_pauses_double_up_to_the_longest_one() -> None:
    assert [pause(failures, jitter=1.0) for failures in range(4)] == [1.0, 2.0, 4.0, 5.0]


def test_jitter_takes_up_to_half_of_a_pause() -> None:
    assert [pause(1, jitter=jitter) for jitter in (0.0, 0.5, 1.0)] == [1.0, 1.5, 2.0]


@pytest.mark.parametrize("retry_after_s", [None, 1.0])
def test_a_turn_that_has_used_up_its_retries_gets_no_more(retry_after_s: float | None) -> None:
    assert pause(4, retry_after_s=retry_after_s) is None


@pytest.mark.parametrize(("asked_s", "honoured_s"), [(0.0, 0.0), (7.0, 7.0), (3600.0, 60.0)])
def test_a_hosts_wish_is_honoured_up_to_a_bound(asked_s: float, honoured_s: float) -> None:
    assert pause(0, retry_after_s=asked_s) == honoured_s


@given(st.floats(0, 60), st.floats(0, 1))
def test_a_hosts_wish_is_never_undercut_and_spread_by_a_tenth(asked_s: float, jitter: float) -> None:
    found = pause(0, retry_after_s=asked_s, jitter=jitter)
    assert found is not None
    assert asked_s <= found <= asked_s * 1.1
