"""Skills reach a model when it asks for them, follow their files, and are told once."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.home.houses import Home, House, kinds, living, results_in, text_of, tool_names
from tests.support.doubles import Gate, Play, calls, replies, says, use, waits

LOAD = "load_skill"


def loads(name: str = "refunds") -> Play:
    return calls(use(LOAD, "a", name=name))


def reads(path: str) -> Play:
    return calls(use("read_skill_file", "a", name="refunds", path=path))


def skill_tools(request: dict[str, Any]) -> set[str]:
    return {name for name in tool_names(request) if "skill" in name}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.skill("refunds", "Ask for the receipt first.", description="How money goes back. Also says when it does not.")
    return home


async def loaded(house: House, name: str = "refunds") -> str:
    """What the model is told when it loads the skill in a turn of its own."""
    house.model.then(loads(name), says("So be it."))
    await house.ask("load it")
    (result,) = await house.results()
    return result


async def test_a_skill_is_one_line_until_it_is_loaded_and_its_text_is_a_tool_result(home: Home) -> None:
    async with living(home, loads(), says("I know now.")) as house:
        events = await house.ask("how do refunds work?")
        first, second = house.model.requests
        assert '<skill name="refunds">How money goes back. Also says when it does not.</skill>' in text_of(first)
        assert "Ask for the receipt" not in house.model.bodies[0].decode()
        assert "Ask for the receipt first." in second["messages"][-1]["content"][0]["content"]
        assert second["messages"][-1]["content"][0]["type"] == "tool_result"
        assert (first["system"], first["tools"]) == (second["system"], second["tools"])
        (record,) = await house.records("skill_loaded")
        assert (record["turn"], record["skill"]) == (1, "refunds")
        assert record["tokens"] > 0
        assert kinds(events)[-4:] == ["tool.finished", "skill.loaded", "reply.finished", "turn.finished"]


async def test_a_skill_that_was_loaded_is_not_loaded_again(home: Home) -> None:
    async with living(home) as house:
        await loaded(house)
        assert (await loaded(house)).startswith("Skill refunds is already loaded in this conversation")
        house.model.then(calls(use(LOAD, "a", name="refunds"), use(LOAD, "b", name="Refunds")), says("Twice."))
        await house.ask("in another conversation, twice at once", conversation="c2")
        texts = await house.results(conversation="c2")
        assert sorted("receipt" in text for text in texts) == [False, True]
        assert len(await house.records("skill_loaded")) == len(await house.records("skill_loaded", conversation="c2"))


async def test_an_edit_reaches_the_next_load_and_what_was_said_stays_said(home: Home) -> None:
    async with living(home) as house:
        old = await loaded(house)
        told = await house.after("skill.reloaded", lambda: home.skill("refunds", "Never ask for a receipt."))
        assert told["skill"] == "refunds"
        assert "Never ask for a receipt." in await loaded(house)
        said = [block["content"] for block in results_in(house.model.requests[-1])]
        assert said[0] == old
        assert "Never ask" in said[1]
        versions = [record["digest"] for record in await house.records("skill_loaded")]
        assert len(versions) == len(set(versions)) == 2


async def test_a_file_that_breaks_leaves_its_last_good_version_in_use(home: Home) -> None:
    async with living(home) as house:
        file = home.path / "skills" / "refunds" / "SKILL.md"
        told = await house.after("skill.broken", lambda: file.write_bytes(b"\xff\xfe\x00"))
        assert "refunds" in told["place"]
        assert "Ask for the receipt first." in await loaded(house)
        await house.after("skill.reloaded", lambda: home.skill("refunds", "All is well again."))
        assert "All is well again." in await loaded(house)


async def test_skills_come_and_go_at_the_next_turn_of_a_live_agent(home: Home) -> None:
    async with living(home, says("One."), says("Two."), says("Three.")) as house:
        await house.ask("before")
        await house.after("skill.added", lambda: home.skill("visits", "Be on time."))
        await house.ask("with another one")
        file = home.path / "skills" / "refunds" / "SKILL.md"
        await house.after("skill.removed", file.unlink)
        await house.ask("without the first one")
        told = [text_of(request) for request in house.model.requests]
        assert [('"refunds"' in text, '"visits"' in text) for text in told] == [
            *((True, False), (True, True), (False, True))
        ]
        assert "no skill 'refunds' is available" in await loaded(house)
        assert "perhaps visits" in (await house.results())[0]


async def test_a_skill_that_goes_while_the_model_thinks_cannot_be_loaded_and_does_not_break_the_turn(
    home: Home,
) -> None:
    gate = Gate()
    async with living(home, waits(gate, loads()), says("Then I do without.")) as house:
        message = await house.say("go on")
        await gate.reached.wait()
        await house.after("skill.removed", (home.path / "skills" / "refunds" / "SKILL.md").unlink)
        gate.opened.set()
        assert kinds(await house.ended(message))[-1] == "turn.finished"
        (result,) = await house.results()
        assert result.startswith("no skill 'refunds' is available")
        assert await house.records("skill_loaded") == []
        first, second = house.model.requests
        assert first["system"] == second["system"]


async def test_files_of_a_skill_are_read_and_nothing_outside_it_is(home: Home) -> None:
    (home.path / "skills" / "refunds" / "references").mkdir()
    (home.path / "skills" / "refunds" / "references" / "sums.md").write_text("Up to 50 euros at once.")
    (home.path / "skills" / "refunds" / "logo.png").write_bytes(b"\x89PNG\r\n\x00\x01")
    (home.path / "secret.txt").write_text("the key to everything")
    (home.path / "skills" / "refunds" / "way-out").symlink_to(home.path)
    paths = ("references/sums.md", "logo.png", "../../secret.txt", "way-out/secret.txt", "/etc/hostname", "SKILL.md")
    async with living(home) as house:
        told = {}
        for path in paths:
            house.model.then(reads(path), says("Hm."))
            await house.ask(f"read {path}")
            (told[path],) = await house.results()
        outcomes = [record["outcome"] for record in await house.records("tool_finished")]
    assert told["references/sums.md"] == "Up to 50 euros at once."
    assert told["logo.png"] == "logo.png of skill refunds is no text: 8 bytes that cannot be shown"
    assert "leads upwards" in told["../../secret.txt"]
    assert "symbolic link" in told["way-out/secret.txt"]
    assert "is absolute" in told["/etc/hostname"]
    assert "load_skill gives its text" in told["SKILL.md"]
    assert outcomes == ["succeeded", "succeeded", "denied", "failed", "denied", "denied"]
    assert not any("the key" in text for text in told.values())


async def test_a_search_is_offered_only_where_the_index_has_no_room_for_all(tmp_path: Path) -> None:
    few, many = Home(tmp_path / "few"), Home(tmp_path / "many")
    for number in range(60):
        many.skill(f"skill-{number:02}", description=f"About the matter {number}.")
    few.skill("skill-00")
    many.settings(skills={"index_budget_tokens": 64})
    async with living(few, says("Few.")) as house:
        await house.ask("hello")
        assert skill_tools(house.model.requests[0]) == {LOAD, "read_skill_file"}
    search = calls(use("search_skills", "a", query="matter 41"))
    async with living(many, search, loads("skill-41"), says("Found.")) as house:
        await house.ask("hello")
        asked = house.model.requests
        assert skill_tools(asked[0]) == {LOAD, "read_skill_file", "search_skills"}
        assert "more skills are not listed here; search_skills finds them" in text_of(asked[0])
        assert "skill-41" not in text_of(asked[0])
        found = results_in(asked[1])[0]["content"].splitlines()
        assert found[0] == "skill-41: About the matter 41."
        assert (await house.records("skill_loaded"))[0]["skill"] == "skill-41"


async def test_a_skill_is_loaded_again_after_the_turn_that_loaded_it_was_refused(home: Home) -> None:
    async with living(home, loads(), replies(stop_reason="refusal")) as house:
        assert kinds(await house.ask("something bad"))[-1] == "turn.refused"
        assert "Ask for the receipt first." in await loaded(house)
