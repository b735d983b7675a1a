"""What is switched off costs nothing: the request is the one of a home that never had it, byte for byte."""

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.home.houses import Home, living, text_of, tool_names, without
from tests.support.doubles import calls, says, use

OFF = {"tool__pay": False, "skill__refunds": False}


def whole(path: Path) -> Home:
    """A home with two of everything."""
    home = Home(path)
    home.agent(policies=["*"])
    home.tools("look", file="look.py", effect="read")
    home.tools("pay", file="pay.py")
    home.skill("refunds")
    home.skill("visits")
    home.policy("money", "A refund needs a receipt.")
    return home


async def bodies(home: Home) -> list[bytes]:
    """What the model is asked in two turns, the first of which calls a tool."""
    async with living(home, calls(use("look", "a")), says("There."), says("Goodbye.")) as house:
        await house.ask("a refund, please")
        await house.ask("thanks for the refund")
        return house.model.bodies


def nothing(_: Home) -> None:
    pass


def skills_off(home: Home) -> None:
    home.flags(skill__refunds=False, skill__visits=False)


CASES: dict[str, tuple[Callable[[Home], Any], Callable[[Home], Any]]] = {
    "a tool": (lambda home: home.flags(tool__pay=False), lambda home: (home.path / "tools/pay.py").unlink()),
    "a skill": (
        lambda home: home.flags(skill__refunds=False),
        lambda home: shutil.rmtree(home.path / "skills/refunds"),
    ),
    "all skills": (skills_off, lambda home: shutil.rmtree(home.path / "skills")),
    "all skills by the agent": (
        lambda home: home.agent(policies=["*"], skills=[]),
        lambda home: shutil.rmtree(home.path / "skills"),
    ),
    "policies": (
        lambda home: home.agent(policies=[]),
        lambda home: shutil.rmtree(home.path / "config/policies"),
    ),
    "a flag that is on": (lambda home: home.flags(tool__pay=True, skill__refunds=True), nothing),
    "a skill's unread files": (
        lambda home: (home.path / "skills/refunds/notes.md").write_text("Never asked for."),
        nothing,
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_a_request_without_a_feature_is_that_of_a_home_without_its_files(tmp_path: Path, name: str) -> None:
    switched, removed = CASES[name]
    off, gone = whole(tmp_path / "off"), whole(tmp_path / "gone")
    switched(off)
    removed(gone)
    without_it = await bodies(gone)
    assert len(without_it) == 3
    assert await bodies(off) == without_it


@pytest.mark.parametrize("name", ["a tool", "a skill", "all skills", "policies"])
async def test_a_feature_that_is_on_does_cost_something(tmp_path: Path, name: str) -> None:
    gone = whole(tmp_path / "gone")
    CASES[name][1](gone)
    with_it, without_it = await bodies(whole(tmp_path / "on")), await bodies(gone)
    assert len(with_it[0]) > len(without_it[0])


async def test_a_flag_that_is_flipped_changes_the_next_turn_and_nothing_else(tmp_path: Path) -> None:
    home = whole(tmp_path / "home")
    home.flags(tool__pay=True, skill__refunds=True)
    async with living(home, *(says(f"Answer {number}.") for number in range(5))) as house:
        await house.ask("one")
        await house.ask("two")
        await house.after("flags.changed", lambda: home.flags(**OFF))
        await house.ask("three")
        await house.ask("four")
        await house.after("flags.changed", lambda: home.flags(tool__pay=True, skill__refunds=True))
        await house.ask("five")
        requests = house.model.requests
        pinned = [record["decisions"] for record in await house.records("flags_pinned")]
        returned = [record["digest"] for record in await house.records("flags_returned")]
        first = (await house.records("flags_pinned"))[0]["digest"]
        changed = await house.records("preamble_changed")
        changed += await house.records("preamble_returned")
        prepared = await house.records("turn_prepared")
    tables = [(without(request, "messages", "tools", "system"), request["messages"]) for request in requests]
    for (fields, said), (next_fields, next_said) in pairwise(tables):
        assert next_fields == fields
        assert next_said[: len(said)] == said
    assert [tool_names(request).count("pay") for request in requests] == [1, 1, 0, 0, 1]
    assert [text_of(request).count('"refunds"') for request in requests] == [1, 1, 0, 0, 1]
    assert requests[2]["system"][0] == requests[0]["system"][0]
    assert [tool for tool in requests[0]["tools"] if tool["name"] != "pay"] == requests[2]["tools"]
    assert (requests[0]["system"], requests[0]["tools"]) == (requests[4]["system"], requests[4]["tools"])
    _, off = pinned
    assert returned == [first]
    assert off == [
        {"key": key, "value": False, "variant": "default", "reason": "STATIC"} for key in ("skill.refunds", "tool.pay")
    ]
    assert [record["kind"] for record in changed] == ["preamble_changed", "preamble_changed", "preamble_returned"]
    assert changed[2]["digest"] == changed[0]["digest"]
    # Each stands right before the turn that it is for.
    turns = {record["seq"]: record["turn"] for record in prepared}
    assert [turns[record["seq"] + 1] for record in changed] == [1, 3, 5]


async def test_a_flag_of_nobodys_business_moves_no_byte_of_a_request(tmp_path: Path) -> None:
    home = whole(tmp_path / "home")
    async with living(home, says("One."), says("Two.")) as house:
        await house.ask("one")
        await house.after("flags.changed", lambda: home.flags(tool__elsewhere=False, subagent__planner=False))
        await house.ask("two")
        first, second = house.model.requests
        assert without(first, "messages") == without(second, "messages")
        assert len(await house.records("preamble_changed")) == 1
        assert len(await house.records("flags_pinned")) == 1


async def test_a_broken_file_of_flags_changes_nothing(tmp_path: Path) -> None:
    home = whole(tmp_path / "home")
    home.flags(**OFF)
    async with living(home, says("One."), says("Two.")) as house:
        await house.ask("one")
        await house.after("flags.broken", lambda: (home.path / "config/flags.toml").write_text("[flags\n"))
        await house.ask("two")
        first, second = house.model.requests
        assert without(first, "messages") == without(second, "messages")
        assert "pay" not in tool_names(second)
