"""What turns leave on a disk: size, bytes written, flushes.

Bytes written are what the process handed to ``write`` and its like (``wchar`` of /proc/self/io), checkpoints included.
Flushes are the calls of fdatasync and fsync that strace sees in the process, its start left out.
"""

import os
import re
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import groupby
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

from bench.measure import Figures, folder_in_memory, folder_on_disk, note, probe, written_bytes
from bench.sides import TOGETHER, Side, Talks, both_sides, taking_turns, together

_LONGEST: Final = 500
_SHORT: Final = slice(50, 150)
_LONG: Final = slice(167, None)
_ALONE_TURNS: Final = 60
_TOGETHER_TURNS: Final = 5
_FLUSHED_TURNS: Final = 25
_NO_FILE: Final = 999_999_999
_FLUSH_CALL: Final = re.compile(r"\bf(?:data)?sync\((\d+)")


async def growth() -> Figures:
    """Bytes of the database per turn: of all turns, and how much more of it a long history costs than a short one.

    The latter compares means over whole cycles of snapshots, whose steps would hide a law.
    """
    figures: Figures = {}
    with folder_in_memory() as folder:
        async with both_sides(folder) as sides:
            for side in sides:
                sizes = await _sizes(side)
                per_turn = [(size - sizes[0]) / (2 * turn) for turn, size in enumerate(sizes) if turn]
                figures[side.name] = per_turn[-1]
                figures[f"{side.name} short"] = mean(per_turn[_SHORT])
                figures[f"{side.name} long"] = mean(per_turn[_LONG])
    return figures


async def _sizes(side: Side) -> list[int]:
    """Of the database, as its last commit left it, before the first turn of two conversations and after each."""
    pair, sizes = side.pair(), [_size(side.database)]
    for _ in range(_LONGEST):
        await taking_turns(pair, turns=1)
        sizes.append(_size(side.database))
    return sizes


def _size(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages * page_bytes)


async def written() -> Figures:
    """Bytes written per turn, one conversation at a time and 100 at once."""
    figures: Figures = {}
    with folder_on_disk() as folder:
        async with both_sides(folder) as sides:
            for side in sides:
                figures[f"{side.name} alone"] = await _written_per_turn([side.pair()], turns=_ALONE_TURNS)
                figures[f"{side.name} together"] = await _written_per_turn(side.pairs(TOGETHER), turns=_TOGETHER_TURNS)
    return figures


async def _written_per_turn(pairs: Sequence[Sequence[Talks]], *, turns: int) -> float:
    await together(pairs, turns=1)
    before = written_bytes()
    await together(pairs, turns=turns)
    return (written_bytes() - before) / (2 * len(pairs) * turns)


async def flushing() -> Figures:
    """Turns between marks, which are flushes of no file; measured by whoever traces the process."""
    with folder_on_disk() as folder:
        async with both_sides(folder) as sides:
            for side in sides:
                for pairs, turns in ([side.pair()], _FLUSHED_TURNS), (side.pairs(TOGETHER), _TOGETHER_TURNS):
                    await together(pairs, turns=1)
                    _mark()
                    await together(pairs, turns=turns)
                    _mark()
    return {}


def _mark() -> None:
    with suppress(OSError):
        os.fsync(_NO_FILE)


def flushes(module: str) -> Figures:
    """Flushes per turn, from the probe ``flushing`` of ``module``; nothing without strace."""
    if shutil.which("strace") is None:
        note("flushes are not counted, since strace is not here")
        return {}
    with TemporaryDirectory() as folder:
        log = Path(folder) / "calls"
        tracer = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=fdatasync,fsync", "-o", str(log))
        probe(module, "flushing", tracer=tracer)
        is_mark = [int(found[1]) == _NO_FILE for found in _FLUSH_CALL.finditer(log.read_text())]
    runs = [len(list(run)) for mark, run in groupby(is_mark) if not mark]
    figures: Figures = {}
    between_marks = iter(runs[1::2])
    for side in ("floor", "torpor"):
        figures[f"{side} alone"] = next(between_marks) / (2 * _FLUSHED_TURNS)
        figures[f"{side} together"] = next(between_marks) / (2 * TOGETHER * _TOGETHER_TURNS)
    return figures
