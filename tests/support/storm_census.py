"""What the server of a storm holds when nobody is there and everything sleeps, and whether it grew."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.scrape import Numbers

AT_REST = (
    "torpor_gateway_connections",
    "torpor_gateway_waiting_bytes",
    "torpor_model_places_taken",
    "torpor_model_places_waiting",
    "torpor_store_waiting",
    "torpor_supervisor_waiting_commands",
    "torpor_supervisor_waiting_thaws",
    "torpor_tool_threads_busy",
)
"""Numbers of a server that come to nothing then."""
POOLS = ("thread AnyIO worker", "thread asyncio", "thread tool worker")
"""Threads that come when they are needed and stay, up to a limit of their own."""
OBJECTS_MORE = 10
"""By how many of a kind of its own objects a server may differ between two looks."""
ENTRIES_SHARE = 0.05
MEMORY_SHARE = 0.1


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one process holds at one moment."""

    census: dict[str, Any]
    """As ``tests.support.census`` has it."""
    names: dict[str, int]
    """How many tasks and threads go by which name."""


def restless(numbers: Numbers) -> dict[str, float]:
    """Those that should have come to nothing and have not."""
    found = {name: numbers.value(name) for name in AT_REST}
    found["torpor_supervisor_live"] = sum(numbers.by("torpor_supervisor_live", "state").values())
    return {name: -1.0 if value is None else value for name, value in found.items() if value != 0}


def growth(before: Held, after: Held) -> Iterator[str]:
    """Of what there is more, after the same has been gone through once more."""
    if after.census["tasks"] > before.census["tasks"]:
        yield f"{after.census['tasks']} tasks, {before.census['tasks']} before"
    for where, many in after.census["descriptors"].items():
        if many > (few := before.census["descriptors"].get(where, 0)):
            yield f"{many} descriptors of {where}, {few} before"
    for name, many in after.names.items():
        if many > before.names.get(name, 0) and name.startswith("thread") and not name.startswith(POOLS):
            yield f"{many} of {name}, {before.names.get(name, 0)} before"
    for kind, many in after.census["objects"].items():
        few = before.census["objects"].get(kind, 0)
        if many > few + OBJECTS_MORE:
            yield f"{many} of {kind}, {few} before"
    for name, share in (("entries", ENTRIES_SHARE), ("rss_pages", MEMORY_SHARE)):
        if after.census[name] > (1 + share) * before.census[name]:
            yield f"{after.census[name]} {name}, {before.census[name]} before"
