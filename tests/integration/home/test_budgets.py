"""An agent spends its window as its profile says, and says where it went."""

from pathlib import Path
from typing import Any

import pytest

from tests.integration.home.houses import Home, House, living, results_in
from tests.support.doubles import calls, says, use
from torpor.conversation.budget import PROFILES
from torpor.errors import ConfigError
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext

ADMINISTRATIVE = PROFILES["administrative"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.agent(profile="administrative", policies=["*"])
    home.tools("look", effect="read")
    home.skill("refunds", "Ask for the receipt first.")
    home.policy("money", "# Refunds\n\nA refund needs a receipt.")
    return home


def context(words: int) -> WorkingContext:
    return WorkingContext(
        record=SelectedRecord(type="invoice", id="i-7", text="paid by cash " * words),
        screen=ContextPart(text="the ledger " * words),
        role=ContextPart(text="the head of the desk " * words),
        plan=ContextPart(text="count, then close " * words),
        actions=tuple(ContextPart(text=f"step {number} " * words) for number in range(8)),
    )


async def requested(house: House, *, conversation: str = "c1") -> list[dict[str, Any]]:
    return await house.records("model_requested", conversation=conversation)


async def test_the_sections_of_every_request_add_up_to_the_budget(home: Home) -> None:
    async with living(home, calls(use("load_skill", "a", name="refunds")), says("So."), says("Bye.")) as house:
        await house.tell(context(3))
        await house.ask("a refund")
        await house.ask("thanks")
        records = await requested(house)
        assert {record["budget_tokens"] for record in records} == {8_000}
        assert [sum(record["sections"].values()) for record in records] == [8_000] * 3
        assert set(records[0]["sections"]) == {
            *("instructions", "tools", "skill_index", "history", "envelope", "policy_excerpts", "headroom")
        }
        for record, body in zip(records, house.model.bodies, strict=True):
            used = sum(tokens for name, tokens in record["sections"].items() if name != "headroom")
            assert used == pytest.approx(len(body) / 4, abs=60)
            assert "over" not in record


async def test_the_clinical_profile_is_the_whole_window_of_the_model(home: Home) -> None:
    home.agent()
    async with living(home, says("So.")) as house:
        await house.ask("hello")
        (record,) = await requested(house)
        assert sum(record["sections"].values()) == record["budget_tokens"] == 200_000


@pytest.mark.parametrize(
    ("words", "instructions"),
    [(500, "instructions 1,5"), (300, "instructions 9")],
)
async def test_fixed_parts_over_their_allotment_are_refused_at_the_start_with_the_numbers(
    home: Home, words: int, instructions: str
) -> None:
    home.tools(*(f"tool_number_{number}" for number in range(12)), file="many.py")
    home.agent(profile="administrative", system="Be a clerk. " * words)
    with pytest.raises(ConfigError) as refused:
        async with living(home):
            pass
    said = str(refused.value)
    assert all(word in said for word in ("agent 'clerk'", "administrative", "1,200", instructions, "tools ")), said


async def test_an_agent_within_its_allotment_starts_and_its_index_takes_only_what_is_left(home: Home) -> None:
    for number in range(150):
        home.skill(f"skill-{number:02}", description=f"About the matter {number} and all that it entails. " * 3)
    async with living(home, says("So.")) as house:
        await house.ask("hello")
        (record,) = await requested(house)
        sections = record["sections"]
        fixed = sum(sections.get(name, 0) for name in ("instructions", "tools", "skill_index"))
        assert ADMINISTRATIVE.fixed_tokens * 0.8 < fixed <= ADMINISTRATIVE.fixed_tokens
        assert "search_skills" in house.model.bodies[0].decode()


async def test_an_envelope_over_its_allotment_loses_whole_parts_by_the_rule_and_says_so(home: Home) -> None:
    home.profile("narrow", budget_tokens=8_000, workflow_tokens=150)
    home.agent(profile="narrow")
    async with living(home, says("So.")) as house:
        await house.tell(context(20))
        await house.ask("hello")
        (record,) = await house.records("turn_prepared")
        told = record["signal"][0]["text"]
        assert record["sections"]["envelope"] <= 150
        assert 'left_out="action, plan' in told
        assert "<record " in told
        assert 'truncated="true"' in told
        assert "over" not in (await requested(house))[0]


async def test_excerpts_draw_on_the_allotment_of_the_profile(home: Home) -> None:
    home.profile("narrow", budget_tokens=8_000, policies_tokens=150)
    home.agent(profile="narrow", policies=["*"])
    for number in range(6):
        home.policy(f"rule-{number}", f"# Refunds\n\nA refund of kind {number}: " + "receipts and more " * 20)
    async with living(home, says("So.")) as house:
        await house.ask("refund receipts")
        (record,) = await requested(house)
        assert 0 < record["sections"].get("policy_excerpts", 0) <= 150
        assert "over" not in record


async def test_a_history_over_its_allotment_is_told(home: Home) -> None:
    async with living(home, says("word " * 1_500), says("So.")) as house:
        for text in ("one", "two"):
            await house.ask(text)
        before, after = await requested(house)
        assert "over" not in before
        assert after["over"] == ["conversation"]
        assert after["sections"]["history"] > ADMINISTRATIVE.conversation_tokens
        assert sum(after["sections"].values()) == 8_000


async def test_a_skill_that_is_added_never_takes_more_than_the_allotment(home: Home) -> None:
    async with living(home, says("One."), says("Two.")) as house:
        await house.ask("one")
        await house.after("skill.added", lambda: home.skill("visits", description="About visits. " * 60))
        await house.ask("two")
        first, second = await requested(house)
        fixed = sum(second["sections"].get(name, 0) for name in ("instructions", "tools", "skill_index"))
        assert first["sections"]["skill_index"] < second["sections"]["skill_index"]
        assert fixed <= ADMINISTRATIVE.fixed_tokens
        assert "visits" in results_or_index(house)


def results_or_index(house: House) -> str:
    assert results_in(house.model.requests[-1]) == []
    return "".join(block["text"] for block in house.model.requests[-1]["system"])
