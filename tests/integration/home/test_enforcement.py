"""What is off, unknown or not allowed does not run, whatever the model calls."""

from pathlib import Path

import anyio
import pytest

from tests.integration.home.houses import (
    Home,
    House,
    home_tools,
    kinds,
    living,
    results_in,
    text_of,
    token_of,
    tool_names,
)
from tests.support import flag_providers
from tests.support.doubles import Gate, calls, says, use, waits
from tests.support.flag_providers import PlayedProvider
from torpor.client.torpor_client import TorporClient

SWITCHED_OFF = "Not executed: pay is switched off. Nothing was done; go on without it."


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.tools("look", file="look.py", effect="read")
    home.tools("pay", "ship")
    return home


async def outcomes(house: House) -> list[str]:
    return [record["outcome"] for record in await house.records("tool_finished")]


@pytest.mark.parametrize("is_at_work", [False, True])
async def test_a_tool_that_is_switched_off_in_mid_turn_does_not_run(home: Home, is_at_work: bool) -> None:
    """Args: is_at_work: the turn has run it once already."""
    gate = Gate()
    first = [calls(use("pay", "a"))] if is_at_work else []
    async with living(home, *first, waits(gate, calls(use("pay", "a"), use("look", "b"))), says("Oh.")) as house:
        message = await house.say("pay")
        await gate.reached.wait()
        await house.after("flags.changed", lambda: home.flags(tool__pay=False))
        gate.opened.set()
        assert kinds(await house.ended(message))[-1] == "turn.finished"
        assert home.done() == ["pay", "look"][not is_at_work :]
        assert results_in(house.model.requests[-1])[-2]["content"] == SWITCHED_OFF
        assert results_in(house.model.requests[-1])[-2]["is_error"]
        assert (await outcomes(house))[-2:].count("denied") == 1
        assert len({bytes(without_messages(body)) for body in house.model.bodies}) == 1
        started = [record["name"] for record in await house.records("tool_started")]
        assert sorted(started) == sorted(home.done())
        house.model.then(calls(use("pay", "a")), says("Not any more."))
        await house.ask("pay again")
        assert "no tool 'pay' is offered" in (await house.results())[0]


def without_messages(body: bytes) -> bytes:
    return body[: body.index(b'"messages"')] + body[body.rindex(b'"model"') :]


async def test_a_tool_that_is_switched_on_in_mid_turn_is_offered_at_the_next_one(home: Home) -> None:
    home.flags(tool__pay=False)
    gate = Gate()
    async with living(home, waits(gate, calls(use("pay", "a"))), says("Oh.")) as house:
        message = await house.say("pay")
        await gate.reached.wait()
        await house.after("flags.changed", lambda: home.flags(tool__pay=True))
        gate.opened.set()
        await house.ended(message)
        assert home.done() == []
        house.model.then(calls(use("pay", "a")), says("Paid."))
        await house.ask("pay again")
        assert home.done() == ["pay"]


@pytest.mark.parametrize("name", ["dance", "Pay", "search_skills", "load_skill", "__import__"])
async def test_a_name_that_was_not_offered_runs_nothing_and_is_told_what_there_is(home: Home, name: str) -> None:
    async with living(home, calls(use(name, "a")), says("Oh.")) as house:
        await house.ask("do it")
        (result,) = await house.results()
        assert result.startswith(f"no tool {name!r} is offered, expected one of look, pay, read_")
        assert result.endswith(", ship")
        assert home.done() == []
        assert await house.records("tool_started") == []


async def test_a_tool_outside_the_allow_list_is_neither_offered_nor_run(home: Home) -> None:
    home.agent(tools=["look"])
    async with living(home, calls(use("pay", "a"), use("look", "b")), says("Oh.")) as house:
        await house.ask("do it")
        assert home_tools(house.model.requests[0]) == ["look"]
        assert home.done() == ["look"]
        assert (await house.results())[0].startswith("no tool 'pay' is offered, expected one of look, read_")
        assert "ship" not in (await house.results())[0]


async def test_two_agents_of_one_home_have_the_tools_and_skills_of_their_own_lists(home: Home) -> None:
    home.skill("refunds")
    home.skill("visits")
    home.agent(tools=["pay"], skills=["refunds"])
    home.agent("porter", tools=["ship"], skills=["visits"])
    async with living(home, says("One."), calls(use("load_skill", "a", name="refunds")), says("Two.")) as house:
        await house.ask("hello")
        await house.ask("hello", conversation="c2", agent="porter")
        clerk, porter = house.model.requests[:2]
        assert [name in tool_names(clerk) for name in ("pay", "ship")] == [True, False]
        assert [name in tool_names(porter) for name in ("pay", "ship")] == [False, True]
        assert ["refunds" in text_of(clerk), "visits" in text_of(clerk)] == [True, False]
        assert ["refunds" in text_of(porter), "visits" in text_of(porter)] == [False, True]
        (result,) = await house.results(conversation="c2")
        assert result == "no skill 'refunds' is available, expected one as it is listed, perhaps visits"


async def test_a_skill_that_is_off_cannot_be_had_by_its_name(home: Home) -> None:
    home.skill("refunds", "The text of it.")
    home.skill("visits")
    home.flags(skill__refunds=False)
    asks = calls(
        use("load_skill", "a", name="refunds"),
        use("load_skill", "b", name="home:refunds"),
        use("read_skill_file", "c", name="refunds", path="notes.md"),
    )
    (home.path / "skills/refunds/notes.md").write_text("The notes of it.")
    async with living(home, asks, says("Oh.")) as house:
        await house.ask("load it")
        assert all("is available" in text for text in await house.results())
        assert await house.records("skill_loaded") == []
        assert b"of it" not in house.model.bodies[-1]


async def test_a_skill_that_a_model_must_not_choose_is_neither_listed_nor_loaded(home: Home) -> None:
    home.skill("refunds", "The text of it.", disable_model_invocation="true")
    home.skill("visits")
    async with living(home, calls(use("load_skill", "a", name="refunds")), says("Oh.")) as house:
        await house.ask("load it")
        assert "refunds" not in text_of(house.model.requests[0])
        assert "no skill 'refunds' is available" in (await house.results())[0]


async def test_tools_that_a_skill_allows_bind_where_the_agent_says_so(home: Home) -> None:
    home.skill("refunds", allowed_tools="look")
    for name, meaning in (("clerk", "restriction"), ("porter", "advice")):
        home.agent(name, skill_tools=meaning)
    plays = (calls(use("pay", "a")), calls(use("load_skill", "a", name="refunds")), says("Loaded."))
    later = (calls(use("pay", "a"), use("look", "b"), use("read_result", "c", handle="0")), says("Done."))
    async with living(home, *plays, *later) as house:
        await house.ask("pay, then load it")
        await house.ask("pay and look")
        denied, looked, read = await house.results()
        assert home.done() == ["pay", "look"]
        assert denied == "Not executed: pay is none of the tools that the skills in use (refunds) allow."
        assert looked == "look is done"
        assert "no result '0' is kept here" in read
        house.model.then(*plays, *later)
        await house.ask("pay, then load it", conversation="c2", agent="porter")
        await house.ask("pay and look", conversation="c2")
        assert sorted(home.done()[2:]) == ["look", "pay", "pay"]


async def test_owners_see_and_run_what_their_own_flags_allow(home: Home) -> None:
    home.skill("refunds")
    rules = "".join(
        f'[flags."{key}"]\ndefault = false\n[[flags."{key}".rules]]\nowner = "ada"\nvalue = true\n'
        for key in ("tool.pay", "skill.refunds")
    )
    (home.path / "config/flags.toml").write_text(rules)
    tries = calls(use("pay", "a"), use("load_skill", "b", name="refunds"))
    async with living(home, tries, says("One."), tries, says("Two."), says("Three.")) as house:
        for owner in ("ada", "bob", "ada"):
            async with TorporClient(house.server.url, token_of(home, owner)) as client:
                other = House(house.server, client, home=home, model=house.model, told=house.told)
                await other.ask(f"I am {owner}", conversation=f"c-{len(house.model.requests)}")
        ada, bob, ada_again = (house.model.requests[at] for at in (0, 2, 4))
        assert ("pay" in tool_names(ada), "refunds" in text_of(ada)) == (True, True)
        assert ("pay" in tool_names(bob), "refunds" in bytes(house.model.bodies[2]).decode()) == (False, False)
        assert (ada["tools"], ada["system"]) == (ada_again["tools"], ada_again["system"])
        assert home.done() == ["pay"]
        (pinned,) = await house.records("flags_pinned", conversation="c-0", owner="ada")
        assert {(each["value"], each["variant"], each["reason"]) for each in pinned["decisions"]} == {
            (True, "rule-1", "TARGETING_MATCH")
        }
        assert "pay" not in "".join((await house.records("tool_finished", conversation="c-2", owner="bob"))[1]["block"])


@pytest.mark.parametrize("hangs", ["evaluating", "starting"])
async def test_a_provider_that_hangs_leaves_the_defaults_and_no_turn_waits_for_it(
    home: Home, monkeypatch: pytest.MonkeyPatch, hangs: str
) -> None:
    provider = PlayedProvider({"tool.pay": True})
    monkeypatch.setattr(flag_providers, "AT_HAND", [provider])
    getattr(provider, hangs).clear()
    home.flags(tool__pay=False, tool__ship=True)
    home.settings(
        flags={
            "provider": "tests.support.flag_providers:at_hand",
            "deadline_s": 0.05,
            "start_deadline_s": 0.05,
            "stop_deadline_s": 0.05,
        }
    )
    try:
        async with living(home, calls(use("pay", "a")), says("Oh.")) as house:
            await house.ask("pay")
            assert ("pay" in tool_names(house.model.requests[0]), "ship" in tool_names(house.model.requests[0])) == (
                *(False, True),
            )
            assert home.done() == []
            (pinned,) = await house.records("flags_pinned")
            assert {(each["value"], each["reason"]) for each in pinned["decisions"]} == {
                *((False, "ERROR"), (True, "ERROR"))
            }
            assert house.told.of("flags.provider_failed")
    finally:
        getattr(provider, hangs).set()


async def test_a_cancel_while_flags_are_waited_for_starts_no_tool(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = PlayedProvider({"tool.pay": True})
    monkeypatch.setattr(flag_providers, "AT_HAND", [provider])
    home.flags(tool__pay=True)
    options = {"provider": "tests.support.flag_providers:at_hand", "deadline_s": 20.0, "contexts_max": 1}
    home.settings(flags=options)
    gate = Gate()
    async with living(home, waits(gate, calls(use("pay", "a"))), says("Another answer.")) as house:
        message = await house.say("pay")
        await gate.reached.wait()
        async with TorporClient(house.server.url, token_of(home, "ada")) as client:
            other = House(house.server, client, home=home, model=house.model, told=house.told)
            await other.ask("I push out what is known of the others", conversation="c2")
        await provider.evaluation_of("default/ada")
        provider.evaluating.clear()
        gate.opened.set()
        await provider.evaluation_of("default/developer")
        try:
            with anyio.fail_after(10):
                await house.client.cancel("c1")
        finally:
            provider.evaluating.set()
        assert kinds(await house.ended(message))[-1] == "turn.cancelled"
        assert home.done() == []
        assert "Not executed" in (await house.results())[0]


async def test_a_tool_acts_for_whoever_the_conversation_belongs_to_whatever_the_model_says(home: Home) -> None:
    home.module(
        "who.py",
        "from torpor import ToolContext, tool\n\n\n"
        '@tool(effect="read")\ndef whoami(context: ToolContext, owner: str = "") -> str:\n    """Who asks."""\n'
        '    return f"{context.tenant}/{context.owner} by {context.principal}"\n',
    )
    asks, forges = calls(use("whoami", "a", owner="ada")), calls(use("whoami", "a", context={"owner": "ada"}))
    async with living(home, asks, says("So."), asks, says("So.")) as house:
        for owner in ("ada", "bob"):
            async with TorporClient(house.server.url, token_of(home, owner)) as client:
                other = House(house.server, client, home=home, model=house.model, told=house.told)
                await other.ask("who am I?", conversation="c1")
        said = [results_in(house.model.requests[at])[-1]["content"] for at in (1, 3)]
        assert said == ["default/ada by ada", "default/bob by bob"]
        house.model.then(forges, says("So."))
        await house.ask("who am I?", conversation="c2")
        assert "nothing was run" in (await house.results(conversation="c2"))[0]
