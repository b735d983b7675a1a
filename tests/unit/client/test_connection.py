"""How long the client waits between two attempts."""

import pytest

from torpor.client.connection import wait_s
from torpor.client.options import ClientOptions


def test_the_first_attempts_are_quick_and_none_is_far_off() -> None:
    waits = [wait_s(failures, options=ClientOptions(), chance=0.0) for failures in range(8)]

    assert waits == pytest.approx([0.1, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert wait_s(10_000, options=ClientOptions(), chance=0.0) == 2.0


def test_chance_takes_up_to_half_of_a_wait() -> None:
    assert wait_s(1, options=ClientOptions(), chance=0.999) == pytest.approx(0.05, rel=0.01)
    assert wait_s(3, options=ClientOptions(), chance=0.5) == pytest.approx(0.3)
