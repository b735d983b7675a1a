"""A home of many skills costs a line for each, and asks with the same bytes turn after turn and start after start."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.home.houses import Home, House, living, text_of, tool_names, without
from tests.support.doubles import calls, says, use

SKILLS = 200


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.tools("look", "pay", "ship", effect="read")
    for number in range(SKILLS):
        folded = f">-\n  Matter {number}, as it is told\n  over two lines. Use it for <matter {number}>."
        home.skill(f"skill-{number:03}", "A text of many words. " * 200, description=folded)
    home.settings(skills={"index_budget_tokens": 20_000})
    return home


async def preambles(house: House) -> list[str]:
    return [record["digest"] for record in await house.records("preamble_changed")]


async def test_two_hundred_skills_are_a_line_each_and_none_of_their_texts(home: Home) -> None:
    async with living(home, says("Hello.")) as house:
        await house.ask("hello")
        (request,) = house.model.requests
        index = request["system"][1]["text"].splitlines()
        assert len(index) == SKILLS + 2
        assert index[42] == (
            '<skill name="skill-041">Matter 41, as it is told over two lines. Use it for &lt;matter 41&gt;.</skill>'
        )
        assert index[1:-1] == sorted(index[1:-1])
        assert "many words" not in text_of(request)
        assert tool_names(request) == sorted(tool_names(request))
        assert "search_skills" not in tool_names(request)


async def test_requests_differ_between_turns_by_what_was_said_and_by_nothing_else(home: Home) -> None:
    async with living(home, calls(use("look", "a")), *(says(f"Answer {number}.") for number in range(4))) as house:
        for text in ("one", "two", "three", "four"):
            await house.ask(text)
        requests = house.model.requests
        assert len({without(request, "messages") for request in requests}) == 1
        for earlier, later in pairwise([request["messages"] for request in requests]):
            assert later[: len(earlier)] == earlier
        assert len(await preambles(house)) == 1
        assert not re.search(rb"20\d\d-\d\d-\d\d", house.model.bodies[-1])


async def test_two_starts_offer_the_same_bytes(home: Home) -> None:
    digests, bodies = [], []
    for number in range(2):
        async with living(home, says("Hello.")) as house:
            await house.ask("hello", conversation=f"c{number}")
            (changed,) = await house.records("preamble_changed", conversation=f"c{number}")
            digests.append(changed["digest"])
            bodies += house.model.bodies
    assert digests[0] == digests[1]
    assert bodies[0] == bodies[1]


async def test_a_start_moves_nothing_in_a_conversation_that_goes_on(home: Home) -> None:
    async with living(home, says("One.")) as house:
        await house.ask("one")
        first = house.model.requests[0]
    async with living(home, says("Two.")) as house:
        house.resume("c1", after=0)
        await house.ask("two")
        assert without(house.model.requests[0], "messages") == without(first, "messages")
        assert len(await preambles(house)) == 1
