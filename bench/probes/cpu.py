"""CPU of turns and thaws: user and system time of all threads, the data in memory.

Floor and engine are measured one after the other, several times; the best sample of each counts.
"""

from collections.abc import Sequence
from typing import Final

from bench import floor
from bench.measure import Cpu, Figures, folder_in_memory
from bench.sides import TOGETHER, Best, Talks, both_sides, taking_turns, together

_SECOND_SAMPLES: Final = 10
_SECOND_TURNS: Final = 60
_LONG_SAMPLES: Final = 3
_LONG_FROM: Final = 400
_LONG_TURNS: Final = 200
_TOGETHER_SAMPLES: Final = 5
_TOGETHER_TURNS: Final = 2
THAWED_TURNS: Final = (20, 200, 1000)
_THAWS: Final = 20


async def of_a_turn() -> Figures:
    """Microseconds of a second turn, and of turns 401 to 600, in which one snapshot falls."""
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
                    best.take(f"{side.name} long", await _cpu_us(pair, turns=_LONG_TURNS))
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
            for _ in range(_TOGETHER_SAMPLES):
                for side in sides:
                    pairs = side.pairs(TOGETHER)
                    await together(pairs, turns=1)
                    cpu = Cpu()
                    await together(pairs, turns=_TOGETHER_TURNS)
                    best.take(side.name, cpu.seconds / (2 * TOGETHER * _TOGETHER_TURNS))
    return {name: 1 / seconds for name, seconds in best.figures.items()}


async def of_thaws() -> Figures:
    """Milliseconds from a sleeping conversation to one that can answer, by turns of its history."""
    best = Best()
    with folder_in_memory() as folder:
        async with both_sides(folder) as sides:
            engine, other = sides.engine, sides.engine.talker("other")
            for turns in THAWED_TURNS:
                name = f"slept_{turns}"
                await taking_turns([sides.floor.make(name)], turns=turns)
                sleeper = engine.talker(name)
                await taking_turns([sleeper, other], turns=turns)
                for _ in range(_THAWS):
                    await sleeper.hibernate()
                    cpu = Cpu()
                    await sleeper.thaw()
                    best.take(f"torpor {turns}", cpu.seconds * 1e3)
                    cpu = Cpu()
                    floor.load(sides.floor.database, name)
                    best.take(f"floor {turns}", cpu.seconds * 1e3)
    return best.figures
