"""A host that is down costs one call at a time."""

import pytest

from tests.support.doubles import ManualClock
from torpor.model.circuit import Circuit, CircuitOptions, CircuitState

OPTIONS = CircuitOptions(failures_max=3, cool_down_s=10.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def circuit(clock: ManualClock) -> Circuit:
    return Circuit(OPTIONS, clock=clock)


def opened(circuit: Circuit) -> None:
    for _ in range(OPTIONS.failures_max):
        assert circuit.blocked_for_s() == 0
        circuit.failed()


def test_it_opens_after_enough_failures_in_a_row_and_says_for_how_long(circuit: Circuit, clock: ManualClock) -> None:
    opened(circuit)
    clock.advance(4)
    assert (circuit.state, circuit.blocked_for_s()) == (CircuitState.OPEN, 6.0)
    assert repr(circuit) == "<Circuit open failures=3>"


def test_failures_that_are_not_in_a_row_do_not_add_up(circuit: Circuit) -> None:
    for _ in range(5):
        circuit.failed()
        circuit.failed()
        circuit.succeeded()
    assert (circuit.state, circuit.blocked_for_s()) == (CircuitState.CLOSED, 0.0)


def test_after_the_cool_down_one_call_is_let_through_and_no_other(circuit: Circuit, clock: ManualClock) -> None:
    opened(circuit)
    clock.advance(10)
    assert [circuit.blocked_for_s() for _ in range(3)] == [0.0, 10.0, 10.0]
    assert circuit.state is CircuitState.PROBING


def test_a_probe_that_succeeds_closes_it(circuit: Circuit, clock: ManualClock) -> None:
    opened(circuit)
    clock.advance(10)
    circuit.blocked_for_s()
    circuit.succeeded()
    assert [circuit.blocked_for_s() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_a_probe_that_fails_opens_it_again_at_once(circuit: Circuit, clock: ManualClock) -> None:
    opened(circuit)
    clock.advance(10)
    circuit.blocked_for_s()
    clock.advance(2)
    circuit.failed()
    assert (circuit.state, circuit.blocked_for_s()) == (CircuitState.OPEN, 10.0)


def test_a_probe_that_is_never_heard_of_again_is_followed_by_another(circuit: Circuit, clock: ManualClock) -> None:
    opened(circuit)
    for _ in range(3):
        clock.advance(10)
        assert circuit.blocked_for_s() == 0
        assert circuit.blocked_for_s() == 10
