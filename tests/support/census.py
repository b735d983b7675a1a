"""What a process holds at one moment, to be compared with another one."""

import asyncio
import gc
import re
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """What a process holds."""

    tasks: int
    descriptors: dict[str, int]
    """By what they lead to."""
    objects: dict[str, int]
    """Of the engine's own types."""
    entries: int
    """Of all dictionaries, sets and lists together."""
    rss_pages: int

    def count(self) -> Counter[str]:
        """All of it under one name each."""
        several = {f"object {kind}": count for kind, count in self.objects.items()}
        several |= {f"descriptor {where}": count for where, count in self.descriptors.items()}
        return Counter({"tasks": self.tasks, "entries": self.entries, "rss_pages": self.rss_pages, **several})


def steady_growth(looks: Sequence[Census]) -> dict[str, int]:
    """What became more from every look to the next, and by how much at least.

    What each conversation leaves behind grows all the time; a stock that is filled, or something that is open for a
    moment, does not.
    """
    counts = [look.count() for look in looks]
    least = {name: min(after[name] - before[name] for before, after in pairwise(counts)) for name in counts[-1]}
    return {name: more for name, more in least.items() if more > 0}


def census() -> Census:
    """Of this process, whose event loop is asyncio's."""
    gc.unfreeze()  # what stands since the start can grow as well
    gc.collect()
    found = gc.get_objects()
    kinds = Counter(map(type, found))
    return Census(
        tasks=len(asyncio.all_tasks()),
        descriptors=dict(descriptors()),
        objects={repr(kind): count for kind, count in kinds.items() if str(kind.__module__).startswith("torpor.")},
        entries=sum(len(each) for each in found if type(each) in {dict, set, list} and not _is_swept(each, found)),
        rss_pages=int(Path("/proc/self/statm").read_text().split()[1]),
    )


def _is_swept(each: Any, found: list[Any]) -> bool:
    """What the interpreter empties when it likes: dead members of weak sets, and timers that were cancelled."""
    is_sweepings = type(each) is list and bool(each) and isinstance(each[-1], weakref.ref | asyncio.TimerHandle)
    return each is found or is_sweepings


def descriptors() -> Counter[str]:
    """Of this process, by what they lead to, without the number that tells sockets and pipes apart."""
    return Counter(_descriptors())


def _descriptors() -> Iterator[str]:
    for each in Path("/proc/self/fd").iterdir():
        try:
            yield re.sub(r":\[\d+\]$", "", str(each.readlink()))
        except FileNotFoundError:  # the one through which these are listed
            continue
