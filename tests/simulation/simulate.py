"""One run from its seed to its verdict: a storm, then quiet until nothing is due, then the oracle.

World *a* is two processes over one in-memory store, taking leases from each other. World *b* is one process with
restarts over SQLite's own commit core, run inline.
"""

import traceback
from collections import Counter
from collections.abc import Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import anyio
import anyio.abc
import msgspec
import structlog

from tests.simulation import deterministic
from tests.simulation.chaos import Chaos, Stepper
from tests.simulation.clients import Client
from tests.simulation.engine import open_engine
from tests.simulation.faults import Sight
from tests.simulation.life import ANSWER_WITHIN_S, Engine, Life
from tests.simulation.media import Medium, MemoryMedium, SqliteMedium
from tests.simulation.model import key_of
from tests.simulation.offers import Switches
from tests.simulation.planting import Planted
from tests.simulation.tools import Ledger, SimulatedCrash
from tests.simulation.world import World
from tests.support.oracle import judge
from tests.support.oracle_case import NEVER
from tests.support.oracle_evidence import Violation
from tests.support.oracle_story import records_of
from tests.support.oracle_view import canonical
from torpor.conversation import steps
from torpor.conversation.fold import fold
from torpor.conversation.snapshot import decode_snapshot
from torpor.conversation.state import BadHistory, ConversationState
from torpor.conversation.steps import FinishTurn, Step, StepOptions
from torpor.errors import StoreError
from torpor.jobs import runner
from torpor.records.journal import JournalRecord
from torpor.supervisor.crashes import root_cause
from torpor.turn import interpret

_REST_WITHIN_S = 400.0
_END_WITHIN_S = 3000.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    world: str
    seed: int
    violations: list[Violation]
    counts: Counter[str]
    trace: list[str]

    @property
    def command(self) -> str:
        """Plays it again, with its trace."""
        return f"python -m tests.simulation.run --world {self.world} --seed {self.seed}"


class Simulation:
    """Everything of one run."""

    def __init__(self, world: World, *, medium: Medium, processes: int) -> None:
        self.world = world
        self.medium = medium
        self.ledger = Ledger(world, holders=medium.holder)
        self.switches = Switches(world)
        self.stepper = Stepper()
        self._processes = processes
        self._lives: dict[int, Life] = {}
        self._started = 0
        self._clients: list[Client] = []

    def lives(self) -> list[Life]:
        """Those that are up."""
        return [life for life in self._lives.values() if life.is_up]

    async def run(self) -> None:
        """Storm and quiet; what was noted is in the world's evidence."""
        world = self.world
        plan = world.plan
        self._clients = [
            Client(
                world, conversation=f"c{conversation}", number=number, lives=self.lives, has_peers=self._processes > 1
            )
            for conversation in range(plan.conversations)
            for number in range(plan.clients)
        ]
        chaos = Chaos(world, medium=self.medium, stepper=self.stepper, lives=self.lives)
        with anyio.move_on_after(_END_WITHIN_S) as limit:
            async with anyio.create_task_group() as tasks:
                for process in range(self._processes):
                    tasks.start_soon(self._keep_up, process, tasks)
                for client in self._clients:
                    tasks.start_soon(client.watch)
                tasks.start_soon(chaos.run)
                async with anyio.create_task_group() as busy:
                    for client in self._clients:
                        busy.start_soon(client.run)
                    busy.start_soon(self._storm)
                    busy.start_soon(self._bound, busy)
                await self._rest(chaos)
                self._calm()  # whoever had nothing more to ask for may have ended the storm early
                with anyio.move_on_after(ANSWER_WITHIN_S):
                    await world.until(lambda: not any(life.owes for life in self.lives()))
                world.evidence.unanswered.extend(fact for life in self.lives() for fact in life.owes)
                for client in self._clients:
                    await client.catch_up()
                for life in self.lives():
                    life.stop()
                await anyio.sleep(plan.stop_deadline_s + 1)
                tasks.cancel_scope.cancel()
        if limit.cancelled_caught:
            world.unexpected.append(f"the run did not end within {_END_WITHIN_S:g} s")
        self._collect()

    async def _storm(self) -> None:
        with anyio.move_on_after(self.world.plan.storm_s):
            await self.world.until(self._clients_are_done)
        self._calm()

    def _calm(self) -> None:
        """No more faults; clocks stay as far off as they are."""
        world = self.world
        world.note("world", "calm")
        world.is_stormy = False
        self.stepper.disarm()
        for life in self._lives.values():
            life.calm()

    async def _bound(self, busy: anyio.abc.TaskGroup) -> None:
        """Give up on clients that are never answered."""
        with anyio.move_on_after(self.world.plan.storm_s + _REST_WITHIN_S):
            await self.world.until(self._clients_are_done)
        self.world.evidence.unanswered.extend(client.waits_for for client in self._clients if not client.is_done)
        busy.cancel_scope.cancel()

    async def _rest(self, chaos: Chaos) -> None:
        """Until nothing is due or set aside, and every actor has left."""
        with anyio.move_on_after(_REST_WITHIN_S):
            await self.world.until(
                lambda: (
                    not chaos.operators
                    and not self._is_due()
                    and not self._awake()
                    and len(self.lives()) == self._processes
                ),
                every_s=0.5,
            )
            return
        if awake := self._awake():
            self.world.unexpected.append(f"never hibernated: {awake}")

    def _is_due(self) -> bool:
        """Whether a conversation has a next step, or a job is to be done."""
        return self.medium.due() or not all(job.is_dead for job in self.medium.jobs())

    def _clients_are_done(self) -> bool:
        return all(client.is_done for client in self._clients)

    def _awake(self) -> list[str]:
        return [
            f"{conversation} at {life.name}: {status}"
            for life in self.lives()
            for conversation in self._conversations()
            if life.engine is not None and (status := life.engine.supervisor.live_status(key_of(conversation)))
        ]

    def _conversations(self) -> list[str]:
        return [f"c{number}" for number in range(self.world.plan.conversations)]

    async def _keep_up(self, process: int, tasks: anyio.abc.TaskGroup) -> None:
        """One life after another."""
        rng = self.world.rng
        while True:
            self._started += 1
            life = Life(self.world, process=process, number=self._started, on_cut=self.medium.cut)
            self._lives[process] = life
            tasks.start_soon(lambda life: life.run(self._engine, on_up=self._watched), life)
            await life.ended.wait()
            await anyio.sleep(rng.choice((0.0, 0.2, 2.0, 8.0)) if self.world.is_stormy else 0.1)

    def _watched(self, life: Life) -> None:
        if life.engine is not None:
            for client in self._clients:
                client.reconnect()
                life.engine.bus.subscribe(client.key, client)

    def _engine(self, life: Life) -> AbstractAsyncContextManager[Engine]:
        return open_engine(life, medium=self.medium, ledger=self.ledger, switches=self.switches)

    def _collect(self) -> None:
        evidence = self.world.evidence
        evidence.journals = self.medium.journals()
        evidence.jobs_left = self.medium.jobs()
        evidence.blobs = frozenset(handle for _, handle in self.ledger.blobs)
        evidence.is_restricted = self.world.plan.is_restricted
        evidence.has_leases = self.medium.has_leases
        evidence.attempts_max = StepOptions().attempts_max
        evidence.retries_max = self.world.plan.retries_max
        evidence.rounds_max = self.world.plan.step_limit
        evidence.queue_max = self.world.plan.unprocessed_max


def simulate(world: str, seed: int, *, is_traced: bool = False, planted: Planted | None = None) -> Outcome:
    """Run one seed, with a planted bug or without, and judge it; equal arguments give equal outcomes."""
    made = World(seed, is_traced=is_traced, dwells=planted.dwells if planted else {})
    bug = planted.plant() if planted else nullcontext()
    with _medium_of(world) as medium, _logs_of(made), _counted_steps(made), bug:
        simulation = Simulation(made, medium=medium, processes=2 if medium.has_leases else 1)
        try:
            deterministic.run(seed, simulation.run, instruments=(simulation.stepper,))
        except Exception:  # noqa: BLE001  # a run that breaks is a finding with a seed like any other
            made.unexpected.append(traceback.format_exc())
        violations = [*judge(made.evidence), *snapshots_that_differ(made)]
    violations += [Violation("unexpected", "engine", fact) for fact in made.unexpected]
    return Outcome(world=world, seed=seed, violations=violations, counts=made.counts, trace=made.trace or [])


def snapshots_that_differ(world: World) -> Iterator[Violation]:
    """Every snapshot, taken of a live state, is the fold of the journal up to it."""
    before = Counter[str]()
    lives = [(gone.moment, gone.journal) for gone in world.evidence.gone]
    for until, journal in (*lives, *((NEVER, journal) for journal in world.evidence.journals)):
        key, state = key_of(journal.conversation), ConversationState()
        records = iter(msgspec.json.decode(canonical(records_of(journal.rows)), type=list[JournalRecord]))
        since, before[journal.conversation] = before[journal.conversation], until
        own = (snapshot for moment, owner, snapshot in world.snapshots if owner == key and since < moment < until)
        for snapshot in sorted(own, key=lambda snapshot: snapshot.seq):
            try:
                state = fold(state, islice(records, snapshot.seq - state.seq))
            except BadHistory as exc:
                yield Violation("snapshot_differs", f"{journal.conversation} record {snapshot.seq}", f"no fold: {exc}")
                break
            if decode_snapshot(snapshot.data) != state:
                yield Violation("snapshot_differs", f"{journal.conversation} record {snapshot.seq}", "is not the fold")


@contextmanager
def _medium_of(world: str) -> Iterator[Medium]:
    if world == "a":
        yield MemoryMedium()
        return
    shared = Path("/dev/shm")
    with TemporaryDirectory(dir=shared if shared.is_dir() else None) as root:
        yield SqliteMedium(Path(root))


@contextmanager
def _logs_of(world: World) -> Iterator[None]:
    """The engine's log goes into the trace; errors in it that nobody here caused are findings."""

    def take(_: Any, level: str, event: MutableMapping[str, Any]) -> Any:
        name, cause = event.pop("event"), event.get("exc_info")
        match name, event:
            case "commit.reconciled", {"durable": durable}:
                world.saw(Sight.COMMIT_RECONCILED if durable else Sight.COMMIT_NOT_FOUND)
            case "snapshot.ignored", _:
                world.saw(Sight.SNAPSHOT_IGNORED)
            case _:
                pass
        if isinstance(cause, Exception) and not isinstance(root_cause(cause), StoreError | SimulatedCrash):
            world.unexpected.append("".join(traceback.format_exception(cause)))
        # A path differs from run to run, and nothing else does.
        told = {key: value for key, value in event.items() if key not in {"exc_info", "path"}}
        world.note("log", f"{level} {name}", **told)
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(processors=[take], wrapper_class=structlog.BoundLogger, cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def _counted_steps(world: World) -> Iterator[None]:
    decide = steps.next_step

    def next_step(*args: Any, **named: Any) -> Step:
        step = decide(*args, **named)
        world.counts[f"step:{type(step).__name__}"] += 1
        if isinstance(step, FinishTurn):
            world.counts[f"end:{step.end}"] += 1
        return step

    with patch.object(interpret, "next_step", next_step), patch.object(runner, "_CLAIM_SLACK_S", 1.0):
        yield
