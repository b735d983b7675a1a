"""Floor and engine side by side in one process, and ways of letting conversations talk.

Conversations take turns, so that each comes to rest in between, as it does with people: one that gets its next message
at once never goes idle and never writes a snapshot.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from bench import floor
from bench.engine import Engine, running_engine
from bench.measure import Figures
from bench.work import TURN, InstantModel, Script, Shape, message
from torpor.store.sqlite.connection import DATABASE_FILE

_MAILBOX: Final = 64
TOGETHER: Final = 100
"""Conversations at once, where a row says so."""


class Talks(Protocol):
    """A conversation as its client sees it, the floor's or the engine's."""

    async def turn(self) -> None: ...


class FloorTalker:
    """A client of one conversation of the floor; starts its task."""

    def __init__(
        self, name: str, writer: floor.Writer, tasks: TaskGroup, *, latency_s: float = 0.0, shape: Shape = TURN
    ) -> None:
        self._name = name
        self._shape = shape
        self._said = 0
        self._send, inbox = anyio.create_memory_object_stream[tuple[str, anyio.Event]](_MAILBOX)
        tasks.start_soon(floor.Conversation(name, writer, Script(shape), latency_s=latency_s).run, inbox)

    async def turn(self) -> None:
        done = anyio.Event()
        self._said += 1
        await self._send.send((message(self._name, self._said, self._shape), done))
        await done.wait()


class Side:
    """Makes conversations of one kind."""

    def __init__(self, name: str, make: Callable[[str], Talks], *, database: Path) -> None:
        self.name = name
        self.database = database
        self._make = make
        self._made = 0

    def make(self, name: str = "") -> Talks:
        self._made += 1
        return self._make(name or f"c_{self._made}")

    def pair(self) -> tuple[Talks, Talks]:
        return self.make(), self.make()

    def pairs(self, count: int) -> list[tuple[Talks, Talks]]:
        return [self.pair() for _ in range(count)]


class Sides:
    """Iterates over the floor, then the engine."""

    def __init__(self, floor_side: Side, torpor: Side, engine: Engine) -> None:
        self.floor = floor_side
        self.torpor = torpor
        self.engine = engine

    def __iter__(self) -> Iterator[Side]:
        yield self.floor
        yield self.torpor


@asynccontextmanager
async def both_sides(folder: Path, *, latency_s: float = 0.0) -> AsyncIterator[Sides]:
    """Both, over databases of their own in ``folder``."""
    database = folder / "floor.db"
    with floor.writing(database) as writer:
        async with anyio.create_task_group() as tasks:
            async with running_engine(folder, model=InstantModel(latency_s=latency_s)) as engine:
                yield Sides(
                    Side(
                        "floor", lambda name: FloorTalker(name, writer, tasks, latency_s=latency_s), database=database
                    ),
                    Side("torpor", engine.talker, database=folder / DATABASE_FILE),
                    engine,
                )
            tasks.cancel_scope.cancel()


async def taking_turns(talks: Sequence[Talks], *, turns: int) -> None:
    """Each has ``turns`` turns, one at a time."""
    for _ in range(turns):
        for talk in talks:
            await talk.turn()


async def together(pairs: Sequence[Sequence[Talks]], *, turns: int) -> None:
    """All pairs at once, each taking turns."""
    async with anyio.create_task_group() as tasks:
        for pair in pairs:
            tasks.start_soon(_take_turns, pair, turns)


async def _take_turns(talks: Sequence[Talks], turns: int) -> None:
    await taking_turns(talks, turns=turns)


class Best:
    """The least of several samples, by name: whatever else the machine does only adds."""

    def __init__(self) -> None:
        self.figures: Figures = {}

    def take(self, name: str, value: float) -> None:
        self.figures[name] = min(value, self.figures.get(name, value))
