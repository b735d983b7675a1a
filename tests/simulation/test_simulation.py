"""A few hundred seeds of both worlds break no promise, meet everything that can happen, and find planted bugs."""

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from typing import get_args

import pytest

from tests.simulation import deterministic
from tests.simulation.faults import Fault, Sight
from tests.simulation.planted import PLANTED
from tests.simulation.simulate import Outcome, simulate
from torpor.conversation.steps import Step, TurnEnd
from torpor.records.journal import JournalRecord, StepKind, WhenBusy
from torpor.records.journal import Outcome as CallOutcome

CHUNK = 50
"""Seeds that one test plays; many more would look like a test that hangs."""
SAMPLE = [("a", number) for number in range(4)] + [("b", number) for number in range(2)]
SOAK = [("a", number) for number in range(4, 84)] + [("b", number) for number in range(2, 42)]


def played(world: str, number: int) -> list[Outcome]:
    """One chunk of the seeds of a world."""
    deterministic.check()
    return [simulate(world, seed) for seed in range(number * CHUNK, (number + 1) * CHUNK)]


sample = cache(played)
"""For those chunks that every run of the tests plays."""


def broken(outcomes: list[Outcome]) -> str:
    """What to read, and what to play, when a promise was broken."""
    lines = []
    for outcome in outcomes:
        if outcome.violations:
            lines += [outcome.command, *(f"    {str(violation)[:500]}" for violation in outcome.violations[:3])]
    return "\n".join(lines)


def test_equal_seeds_interleave_equally_and_others_do_not() -> None:
    deterministic.check()


@pytest.mark.parametrize("world", ["a", "b"])
def test_a_seed_plays_the_same_run_in_every_process(world: str) -> None:
    command = [sys.executable, "-m", "tests.simulation.run", "--world", world, "--seed", "3"]
    traces = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            timeout=60,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0].count(b"\n") > 50
    assert traces[0] == traces[1]


@pytest.mark.parametrize(("world", "number"), SAMPLE)
def test_no_seed_breaks_a_promise(world: str, number: int) -> None:
    assert not broken(sample(world, number)), broken(sample(world, number))


def test_the_sample_meets_every_fault_and_everything_that_follows_from_one() -> None:
    counts = sum((outcome.counts for chunk in SAMPLE for outcome in sample(*chunk)), Counter[str]())
    expected = {
        *(f"fault:{fault}" for fault in Fault),
        *(f"sight:{sight}" for sight in Sight),
        *(f"outcome:{outcome}" for outcome in CallOutcome),
        *(f"attempt:{step}" for step in StepKind),
        *(f"when_busy:{choice}" for choice in WhenBusy if choice is not WhenBusy.REJECT),
        *("cancelled:client", "cancelled:interrupt"),
        *("failed:crashed", "failed:step_limit", "failed:model_unavailable", "failed:model_request_invalid"),
    }
    assert sorted(expected - counts.keys()) == []


@pytest.mark.parametrize("world", ["a", "b"])
def test_the_sample_of_each_world_meets_every_step_and_every_record(world: str) -> None:
    chunks = (sample(*chunk) for chunk in SAMPLE if chunk[0] == world)
    counts = sum((outcome.counts for chunk in chunks for outcome in chunk), Counter[str]())
    expected = {
        *(f"step:{step.__name__}" for step in get_args(Step)),
        *(f"end:{end}" for end in TurnEnd),
        *(f"record:{kind.__struct_config__.tag}" for kind in get_args(JournalRecord)),
    }
    assert sorted(expected - counts.keys()) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str) -> None:
    bug = PLANTED[name]
    found = (
        violation.kind == bug.kind
        for seed in range(bug.seeds)
        for violation in simulate("a", seed, planted=bug).violations
    )
    assert any(found), f"{bug.kind} was reported for none of {bug.seeds} seeds"


@pytest.mark.soak
@pytest.mark.parametrize(("world", "number"), SOAK)
def test_no_seed_of_thousands_breaks_a_promise(world: str, number: int) -> None:
    outcomes = played(world, number)
    assert not broken(outcomes), broken(outcomes)
