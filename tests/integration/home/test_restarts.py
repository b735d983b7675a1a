"""A turn goes on in a home that has changed meanwhile: what it was offered stays, what is gone says so."""

import shutil
from pathlib import Path

import pytest

from tests.integration.home.houses import Home, Model, home_tools, kinds, living, results_in, text_of
from tests.support.doubles import Gate, calls, says, use, waits
from torpor.records.context import ContextPart, WorkingContext


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.agent(policies=["*"])
    home.tools("look", file="look.py", effect="read")
    home.tools("pay", "ship", file="deeds.py")
    home.skill("refunds", "Ask for the receipt first.")
    home.skill("visits", "Be on time.")
    home.policy("money", "# Refunds\n\nA refund needs a receipt.")
    return home


def change_everything(home: Home) -> None:
    """Another prompt, tools and skills gone, come and switched off, no policies."""
    home.agent(system="You are another clerk.")
    (home.path / "tools/look.py").unlink()
    home.tools("count", file="count.py", effect="read")
    home.flags(tool__pay=False, skill__visits=False)
    shutil.rmtree(home.path / "skills/refunds")
    home.skill("manners")
    shutil.rmtree(home.path / "config/policies")


async def stopped_while_thinking(home: Home, text: str) -> Model:
    """A turn that the server leaves in the middle of its first model call."""
    gate, model = Gate(), Model()
    async with living(home, waits(gate, says("Never said.")), model=model) as house:
        await house.tell(WorkingContext(screen=ContextPart(text="the ledger")))
        await house.say(text)
        await gate.reached.wait()
    return model


async def test_a_turn_goes_on_as_it_was_offered_and_calls_of_what_is_gone_say_so(home: Home) -> None:
    before = await stopped_while_thinking(home, "a refund, please")
    change_everything(home)
    all_of_it = calls(
        use("look", "a"),
        use("pay", "b"),
        use("ship", "c"),
        use("count", "d"),
        use("load_skill", "e", name="refunds"),
        use("load_skill", "f", name="visits"),
        use("load_skill", "g", name="manners"),
    )
    async with living(home, all_of_it, says("I did what I could."), says("Next.")) as house:
        house.resume("c1", after=0)
        assert kinds(await house.until_turn("c1", 1))[-1] == "turn.finished"
        again, then = house.model.bodies
        assert again == before.bodies[0]
        looked, paid, shipped, counted, *loaded = (block["content"] for block in results_in(house.model.requests[1]))
        assert looked == "Not executed: look is no longer there. Nothing was done; go on without it."
        assert paid == "Not executed: pay is switched off. Nothing was done; go on without it."
        assert shipped == "ship is done"
        assert counted.startswith("no tool 'count' is offered, expected one of load_skill, look, pay, ")
        assert [text.partition(" is available")[0] for text in loaded[:2]] == [
            "no skill 'refunds'",
            "no skill 'visits'",
        ]
        assert loaded[2].startswith("Skill manners, version ")
        assert home.done() == ["ship"]
        assert b"a refund needs a receipt" in then.lower()
        await house.ask("and now?")
        request = house.model.requests[2]
        assert text_of(request).startswith("You are another clerk.")
        assert home_tools(request) == ["count", "ship"]
        assert b"needs a receipt" not in house.model.bodies[2]
        assert [record["turn"] for record in await house.records("turn_prepared")] == [1, 2]


async def test_a_call_that_was_running_when_its_tool_went_is_told_as_what_it_is(home: Home) -> None:
    home.slow_tool("wait", effect="read")
    home.slow_tool("send", effect="write")
    async with living(home, calls(use("wait", "a"), use("send", "b")), says("So.")) as house:
        await house.say("do both")
        await house.until_event("tool.started", count=2)
    (home.path / "tools/wait.py").unlink()
    (home.path / "tools/send.py").unlink()
    async with living(home, says("So be it.")) as house:
        house.resume("c1", after=0)
        assert kinds(await house.until_turn("c1", 1))[-1] == "turn.finished"
        waited, sent = (block["content"] for block in results_in(house.model.requests[0]))
        assert waited.startswith("Stopped while running: the turn was ended before wait returned.")
        assert sent.startswith("Outcome unknown: send was started and the tool is no longer there to ask.")


async def test_the_end_of_a_sub_agent_is_told_though_the_home_has_none_any_more(home: Home) -> None:
    home.agent(subagents=["*"])
    home.subagent("helper")
    gate = Gate()
    async with living(home, calls(use("helper", "a", task="help")), waits(gate, says("Never said."))) as house:
        await house.say("have somebody help")
        await gate.reached.wait()
    (home.path / "config/subagents/helper.toml").unlink()
    async with living(home, says("So be it.")) as house:
        house.resume("c1", after=0)
        told = kinds(await house.until_turn("c1", 1))
        assert (told.count("subagent.started"), told.count("subagent.finished"), told[-1]) == (1, 1, "turn.finished")
        (ended,) = await house.records("subagent_finished")
        assert ended["code"] == "lost"


async def test_a_skill_that_is_in_the_conversation_stays_there_without_its_file(home: Home) -> None:
    async with living(home, calls(use("load_skill", "a", name="refunds")), says("I know.")) as house:
        await house.ask("load it")
    shutil.rmtree(home.path / "skills/refunds")
    async with living(home, calls(use("load_skill", "a", name="refunds")), says("I still know.")) as house:
        house.resume("c1", after=0)
        await house.ask("do you still know?")
        first, second = results_in(house.model.requests[-1])
        assert "Ask for the receipt first." in first["content"]
        assert second["content"].startswith("no skill 'refunds' is available")


async def test_a_skill_is_known_to_be_loaded_after_a_sleep_and_a_start(home: Home) -> None:
    load = calls(use("load_skill", "a", name="refunds"))
    async with living(home, load, says("One."), load, says("Two.")) as house:
        await house.ask("load it")
        await house.client.hibernate("default/developer/c1", deadline_s=5.0)
        await house.ask("load it")
        assert "already loaded" in (await house.results())[0]
    async with living(home, load, says("Three.")) as house:
        house.resume("c1", after=0)
        await house.ask("load it")
        assert "already loaded" in (await house.results())[0]
        assert len(await house.records("skill_loaded")) == 1
