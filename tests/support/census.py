"""What a process holds at one moment, to be compared with another one."""

import asyncio
import gc
from collections import Counter
from pathlib import Path

import msgspec


class Census(msgspec.Struct, frozen=True, kw_only=True):
    """What a process holds."""

    tasks: int
    descriptors: int
    objects: dict[str, int]
    """Of the engine's own types."""
    entries: int
    """Of all dictionaries, sets and lists together."""
    rss_pages: int

    def growth_since(self, before: "Census") -> dict[str, int]:
        """By how much there are more of the engine's own objects."""
        return {kind: count - before.objects.get(kind, 0) for kind, count in self.objects.items()}


def census() -> Census:
    """Of this process, whose event loop is asyncio's."""
    gc.unfreeze()  # what stands since the start can grow as well
    gc.collect()
    found = gc.get_objects()
    kinds = Counter(map(type, found))
    return Census(
        tasks=len(asyncio.all_tasks()),
        descriptors=sum(1 for _ in Path("/proc/self/fd").iterdir()),
        objects={repr(kind): count for kind, count in kinds.items() if str(kind.__module__).startswith("torpor.")},
        entries=sum(len(each) for each in found if type(each) in {dict, set, list} and each is not found),
        rss_pages=int(Path("/proc/self/statm").read_text().split()[1]),
    )
