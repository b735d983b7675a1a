"""CPU of turns and thaws: user and system time of all threads, the data in memory.

Floor and engine are measured one after the other, several times; the best sample of each counts.
"""

from collections.abc import Sequence
from statistics import mean
from typing import Final

import anyio

from bench import floor
from bench.measure import Cpu, Figures, folder_in_memory
from bench.sides import TOGETHER, Best, Talks, both_sides, taking_turns, together

_SECOND_SAMPLES: Final = 6
_SECOND_TURNS: Final = 50
_LONG_SAMPLES: Final = 1
_LONG_FROM: Final = 400
_LONG_TURNS: Final = 200
_CHUNK_TURNS: Final = 25
_TOGETHER_SAMPLES: Final = 6
THAWED_TURNS: Final = (20, 200, 1000)
_THAWS: Final = 6
_TAIL_SHARE: Final = 50
"""A tail ends at an eighth of the snapshot and so is half of that on average: in turns, about this part of them."""


async def of_a_turn() -> Figures:
    """Microseconds of a second turn; of turns 401 to 600, in which one snapshot falls, beside turns of young ones."""
    best = Best()
    with folder_in_memory() as folder:
        async with both_sides(folder) as sides:
            for _ in range(_SECOND_SAMPLES):
                for side in sides:
                    talks = [side.make() for _ in range(_SECOND_TURNS)]
                    await taking_turns(talks, turns=1)
                    best.take(f"{side.name} second", await _cpu_us(talks, turns=1))
            for _ in range(_LONG_SAMPLES):
                for side in sides:
                    pair = side.pair()
                    await taking_turns(pair, turns=_LONG_FROM)
                    for chunk in range(_LONG_TURNS // _CHUNK_TURNS):
                        best.take(f"{side.name} long {chunk}", await _cpu_us(pair, turns=_CHUNK_TURNS))
                        young = side.pair()
                        await taking_turns(young, turns=1)
                        best.take(f"{side.name} young {chunk}", await _cpu_us(young, turns=_CHUNK_TURNS))
    for what in ("floor long", "floor young", "torpor long", "torpor young"):
        best.figures[what] = mean(value for name, value in best.figures.items() if name.startswith(f"{what} "))
    return best.figures


async def _cpu_us(talks: Sequence[Talks], *, turns: int) -> float:
    cpu = Cpu()
    await taking_turns(talks, turns=turns)
    return cpu.seconds / (len(talks) * turns) * 1e6


async def together_per_second() -> Figures:
    """Turns per CPU second, 100 conversations at once."""
    best = Best()
    with folder_in_memory() as folder:
        async with both_sides(folder) as sides:
            talks = {side.name: [(side.make(),) for _ in range(TOGETHER)] for side in sides}
            for _ in range(_TOGETHER_SAMPLES):
                for side in sides:
                    await anyio.sleep(_REST_S)
                    cpu = Cpu()
                    await together(talks[side.name], turns=1)
                    best.take(side.name, cpu.seconds / TOGETHER)
    return {name: 1 / seconds for name, seconds in best.figures.items()}


_REST_S: Final = 0.02
"""For all of them to come to rest."""


async def of_thaws() -> Figures:
    """Milliseconds from a sleeping conversation to one that can answer, by turns of its history."""
    best = Best()
    with folder_in_memory() as folder:
        async with both_sides(folder) as sides:
            engine, other = sides.engine, sides.engine.talker("other")
            for turns in THAWED_TURNS:
                name = f"slept_{turns}"
                await taking_turns([sides.floor.make(name)], turns=turns + turns // _TAIL_SHARE + 1)
                sleeper = engine.talker(name)
                await taking_turns([sleeper, other], turns=turns)
                await sleeper.hibernate()
                await taking_turns([sleeper, other], turns=turns // _TAIL_SHARE + 1)
                for _ in range(_THAWS):
                    await sleeper.hibernate()
                    cpu = Cpu()
                    await sleeper.thaw()
                    best.take(f"torpor {turns}", cpu.seconds * 1e3)
                    cpu = Cpu()
                    floor.load(sides.floor.database, name)
                    best.take(f"floor {turns}", cpu.seconds * 1e3)
    return best.figures
