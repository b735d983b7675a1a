"""Every number that a part reports has a place in the table, and every name keeps to the conventions."""

import importlib
import pkgutil
import re

import msgspec

import torpor
from torpor.operations.metrics_table import ROOMS, Kind, every_metric

NOT_REPORTED = {
    "client.torpor_client.ClientStatistics": "of a client, which is another process",
    "toolhost.places.PlacesStatistics": "holds two that are reported each by itself",
}
LABELS = {"agent", "code", "host", "how", "kind", "model", "outcome", "reason", "room"}
LABELS |= {"server", "state", "subagent", "tool"}
"""What numbers are told apart by: things that a home or the code names, never people or what they say."""


def statistics() -> dict[str, type[msgspec.Struct]]:
    """Every struct of the engine that is called so, by its module and name."""
    found = {}
    for module in pkgutil.walk_packages(torpor.__path__, "torpor."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if name.endswith("Statistics") and isinstance(value, type) and issubclass(value, msgspec.Struct):
                found[f"{value.__module__.removeprefix('torpor.')}.{name}"] = value
    return found


def test_every_part_that_has_numbers_has_a_room_in_the_table() -> None:
    assert {room.struct for room in ROOMS.values()} | set(NOT_REPORTED) == set(statistics())


def test_every_field_of_every_part_is_in_the_table() -> None:
    structs = statistics()
    told = {name: set(room.numbers) | room.totals for name, room in ROOMS.items()}

    assert told == {name: set(structs[room.struct].__struct_fields__) for name, room in ROOMS.items()}


def test_names_keep_to_the_conventions() -> None:
    for metric in every_metric():
        assert re.fullmatch(r"torpor_[a-z]+(_[a-z]+)*", metric.name), metric.name
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.about.endswith("."), metric.name
        assert set(metric.labels) <= LABELS, metric.name
        assert list(metric.buckets) == sorted(metric.buckets), metric.name


def test_names_are_given_once() -> None:
    names = [metric.name for metric in every_metric()]

    assert len(names) == len(set(names))
