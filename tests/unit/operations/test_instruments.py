"""What counts and traces, put together."""

from typing import Any, cast

import pytest

from tests.support.doubles import ManualClock
from torpor.errors import InvariantBroken
from torpor.operations.instruments import Instruments
from torpor.operations.metrics_turns import TurnNumbers
from torpor.operations.tracing import Untraced
from torpor.store.requests import CommitCore

CORE = cast("CommitCore", object())


def instruments() -> Instruments:
    clock: Any = ManualClock()
    return Instruments(clock=clock, tracing=Untraced())


def test_server_without_a_store_of_its_own_is_never_unready_for_it() -> None:
    assert instruments().can_be_written()


def test_server_has_one_store_to_write() -> None:
    ours = instruments()
    ours.core(CORE)

    with pytest.raises(InvariantBroken):
        ours.core(CORE)


def test_observer_counts_alone_where_traces_are_off() -> None:
    assert isinstance(instruments().observer, TurnNumbers)
