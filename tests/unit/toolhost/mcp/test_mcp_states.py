"""How a connection stands, cell by cell, and how long it rests."""

import itertools

import pytest

from torpor.errors import IllegalTransition
from torpor.toolhost.mcp.options import McpOptions
from torpor.toolhost.mcp.states import TRANSITIONS, ServerSignal, ServerState, next_state, pause_s

OPTIONS = McpOptions(backoff_s=1.0, backoff_max_s=10.0, backoff_jitter=0.5)


@pytest.mark.parametrize(("state", "signal"), list(itertools.product(ServerState, ServerSignal)))
def test_every_cell_of_the_table(state: ServerState, signal: ServerSignal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            next_state(state, signal)


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [pause_s(failures, options=OPTIONS, chance=0.0) for failures in (1, 2, 3, 4, 5, 10_000)]

    assert pauses == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_part_of_a_pause_is_drawn_by_lot() -> None:
    assert pause_s(1, options=OPTIONS, chance=0.5) == 0.75
