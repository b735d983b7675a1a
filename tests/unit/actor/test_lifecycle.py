"""Every cell of the table of an actor's life."""

import pytest

from torpor.actor.lifecycle import TRANSITIONS, ActorState, Signal, next_state
from torpor.errors import IllegalTransition

CELLS = [(state, signal) for state in ActorState for signal in Signal]


@pytest.mark.parametrize(("state", "signal"), [cell for cell in CELLS if cell in TRANSITIONS])
def test_a_listed_signal_leads_on(state: ActorState, signal: Signal) -> None:
    assert next_state(state, signal) is TRANSITIONS[state, signal]


@pytest.mark.parametrize("state", ActorState)
def test_an_end_may_come_at_any_time(state: ActorState) -> None:
    assert next_state(state, Signal.ENDED) is ActorState.STOPPED


@pytest.mark.parametrize(
    ("state", "signal"), [cell for cell in CELLS if cell not in TRANSITIONS and cell[1] is not Signal.ENDED]
)
def test_an_unlisted_signal_is_a_bug_that_names_both(state: ActorState, signal: Signal) -> None:
    with pytest.raises(IllegalTransition, match=f"{signal.name} is not expected in state {state.name}"):
        next_state(state, signal)


def test_the_way_from_thaw_to_hibernation_visits_every_state() -> None:
    state = ActorState.THAWING
    visited = [state]
    for signal in (Signal.LOADED, Signal.WORK_FOUND, Signal.RESTED, Signal.MAILBOX_CLOSED, Signal.RELEASED):
        state = next_state(state, signal)
        visited.append(state)
    assert set(visited) == set(ActorState)
