"""A few hundred seeds of both worlds break no promise, meet everything that can happen, and find planted bugs."""

import fcntl
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from tests.simulation import deterministic
from tests.simulation.faults import Fault, Sight
from tests.simulation.planted import PLANTED
from tests.simulation.simulate import Outcome, simulate
from torpor.conversation.steps import Step, TurnEnd
from torpor.records.attachments import Why
from torpor.records.journal import JournalRecord
from torpor.records.terms import Outcome as CallOutcome
from torpor.records.terms import StepKind, WhenBusy

CHUNK = 25
"""Seeds that one test plays; many more would look like a test that hangs."""
SAMPLE = [("a", number) for number in range(5)] + [("b", number) for number in range(5)]
FOUND = [*(("a", seed) for seed in (1028, 1117, 52021, 54025, 54112, 54124)), ("b", 56151), ("b", 58173)]
"""Seeds beyond the sample that once broke a promise."""
ALWAYS_PLANTED = {"child_outlives_parent", "zombie_writes", "unknown_id_kept", "bundle_delivered_twice"}
ALWAYS_PLANTED |= {"damaged_file_sent", "no_room_is_made"}
"""Of the others, every fifth is looked for in each run."""
SOAK = [("a", number) for number in range(5, 170)] + [("b", number) for number in range(5, 84)]


class Played(msgspec.Struct, frozen=True):
    """What a chunk came to."""

    report: str
    """What to read, and what to play, where a promise was broken; empty when none was."""
    counts: dict[str, int]


Sample = Callable[[str, int], Played]


def played(world: str, number: int) -> Played:
    """Play one chunk of the seeds of a world."""
    deterministic.check()
    outcomes = [simulate(world, seed) for seed in range(number * CHUNK, (number + 1) * CHUNK)]
    return Played(broken(outcomes), sum((outcome.counts for outcome in outcomes), Counter[str]()))


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Sample:
    """The chunks that every run of the tests plays: each once, whichever of the workers asks first."""
    own = tmp_path_factory.getbasetemp()
    shared = own if worker_id == "master" else own.parent

    def once(world: str, number: int) -> Played:
        with (shared / f"simulated-{world}-{number}.json").open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            if known := file.read():
                return msgspec.json.decode(known, type=Played)
            chunk = played(world, number)
            file.write(msgspec.json.encode(chunk))
            return chunk

    return once


def broken(outcomes: list[Outcome]) -> str:
    """What to read, and what to play, when a promise was broken."""
    lines = []
    for outcome in outcomes:
        if outcome.violations:
            lines += [outcome.command, *(f"    {str(violation)[:500]}" for violation in outcome.violations[:3])]
    return "\n".join(lines)


def test_equal_seeds_interleave_equally_and_others_do_not() -> None:
    deterministic.check()


@pytest.mark.parametrize(("world", "seed"), [("a", 2), ("b", 3)])
def test_a_seed_plays_the_same_run_in_every_process(world: str, seed: int) -> None:
    command = [sys.executable, "-m", "tests.simulation.run", "--world", world, "--seed", str(seed)]
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


@pytest.mark.parametrize(("world", "seed"), FOUND)
def test_a_seed_that_once_broke_a_promise_breaks_none(world: str, seed: int) -> None:
    report = broken([simulate(world, seed)])
    assert not report, report


@pytest.mark.parametrize(("world", "number"), SAMPLE)
def test_no_seed_breaks_a_promise(world: str, number: int, sample: Sample) -> None:
    chunk = sample(world, number)
    assert not chunk.report, chunk.report


def test_the_sample_meets_every_fault_and_everything_that_follows_from_one(sample: Sample) -> None:
    counts = {name for chunk in SAMPLE for name in sample(*chunk).counts}
    expected = {
        *(f"fault:{fault}" for fault in Fault),
        *(f"sight:{sight}" for sight in Sight),
        *(f"outcome:{outcome}" for outcome in CallOutcome),
        *(f"attempt:{step}" for step in StepKind),
        *(f"when_busy:{choice}" for choice in WhenBusy if choice is not WhenBusy.REJECT),
        *("cancelled:client", "cancelled:interrupt", "cancelled:deleted"),
        *("failed:crashed", "failed:step_limit", "failed:model_unavailable", "failed:model_request_invalid"),
        *("failed:model_stream_lost", "failed:model_context_too_long", "failed:model_timed_out"),
        *("failed:unknown_stop_reason", "failed:output_limit", "failed:context_too_long"),
        *(f"withdrawn:{why}" for why in Why),
        *("child:answered", "child:cancelled", "child:failed", "child:lost", "child:dropped"),
        *("child:seconds", "child:steps", "child:tokens", "child:depth 1", "child:depth 2", "child:depth 3"),
    }
    assert sorted(expected - counts) == []


@pytest.mark.parametrize("world", ["a", "b"])
def test_the_sample_of_each_world_meets_every_step_and_every_record(world: str, sample: Sample) -> None:
    counts = {name for chunk in SAMPLE if chunk[0] == world for name in sample(*chunk).counts}
    expected = {
        *(f"step:{step.__name__}" for step in get_args(Step)),
        *(f"end:{end}" for end in TurnEnd),
        *(f"record:{kind.__struct_config__.tag}" for kind in get_args(JournalRecord)),
    }
    assert sorted(expected - counts) == []


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_where_it_is_planted(name: str) -> None:
    with PLANTED[name].plant():
        pass


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if at % 5 == 0 or name in ALWAYS_PLANTED else pytest.mark.soak)
        for at, name in enumerate(PLANTED)
    ],
)
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
    chunk = played(world, number)
    assert not chunk.report, chunk.report
