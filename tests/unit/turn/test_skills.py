"""The skills of a turn are those that are offered now; a text that the conversation has is not given again."""

from pathlib import Path

import pytest

from tests.integration.skillbook.shelves import load, put, text
from tests.support.doubles import FakeToolbox, Ledger, PlayedModel, reads
from tests.support.skills import catalogue_of
from torpor.conversation.state import LoadedSkill
from torpor.errors import ToolFailed
from torpor.flags.contract import EVERYTHING_ON, Decided, defaulted
from torpor.records.ids import CallId
from torpor.skillbook.catalogue import Catalogue
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition
from torpor.turn.skills import TurnSkills

A, B = CallId("call_a"), CallId("call_b")


def skills_of(
    catalogue: Catalogue, *off: str, loaded: tuple[LoadedSkill, ...] = (), allowed: tuple[str, ...] = ("*",)
) -> TurnSkills:
    definition = AgentDefinition(name="clerk", system="You are a clerk.", model={"kind": "played"}, skills=allowed)
    agent = Agent(definition, model=PlayedModel(), toolbox=FakeToolbox([reads("look")], ledger=Ledger()))
    decided = Decided(defaulted(f"skill.{key}", default=False, reason="STATIC") for key in off)
    return TurnSkills(turn=3, offer=agent.offer(decided if off else EVERYTHING_ON, catalogue), loaded=loaded)


def known(catalogue: Catalogue, key: str) -> LoadedSkill:
    skill = catalogue.get(key)
    assert skill is not None
    return LoadedSkill(key=key, digest=catalogue.body(skill).digest)


def test_a_text_comes_with_its_version_and_a_record_for_its_call() -> None:
    skills = skills_of(catalogue_of(refunds="Ask first."))
    told = skills.of_call(A).load("refunds")
    record = skills.loaded_by(A)
    assert record is not None
    assert told == f"Skill refunds, version {record.digest[:12]}:\n\nAsk first."
    assert (record.turn, record.call_id, record.skill) == (3, A, "refunds")
    assert record.tokens == -(-len(told) // 4)
    assert skills.loaded_by(B) is None


def test_a_version_that_the_conversation_has_is_not_given_again_and_another_one_is() -> None:
    old, new = catalogue_of("refunds", edition=1), catalogue_of("refunds", edition=2)
    skills = skills_of(old, loaded=(known(old, "refunds"),))
    assert "is already loaded in this conversation" in skills.of_call(A).load("refunds")
    assert skills.loaded_by(A) is None
    skills = skills_of(new, loaded=(known(old, "refunds"),))
    assert "Edition 2" in skills.of_call(A).load("refunds")
    assert skills.loaded_by(A) is not None


def test_two_calls_of_one_reply_bring_one_text() -> None:
    skills = skills_of(catalogue_of("refunds"))
    assert "Edition 1" in skills.of_call(A).load("refunds")
    assert "is already loaded" in skills.of_call(B).load("Refunds")
    assert skills.loaded_by(B) is None


def test_the_tools_that_a_skill_allows_are_on_record() -> None:
    skills = skills_of(catalogue_of("refunds", front="allowed-tools: pay look\n"))
    skills.of_call(A).load("refunds")
    record = skills.loaded_by(A)
    assert record is not None
    assert record.allowed_tools == ("pay", "look")


@pytest.mark.parametrize("name", ["refunds", "Refunds", "home:refunds", "nothing", ""])
def test_what_is_not_offered_cannot_be_had_by_any_name(name: str) -> None:
    for skills in (
        skills_of(catalogue_of("refunds", "visits"), "refunds"),
        skills_of(catalogue_of("refunds", "visits"), allowed=("visits",)),
        skills_of(catalogue_of("visits")),
    ):
        with pytest.raises(ToolFailed, match=r"is available, expected one as it is listed, perhaps visits"):
            skills.of_call(A).load(name)
        assert skills.loaded_by(A) is None


async def test_files_of_what_is_not_offered_cannot_be_read() -> None:
    skills = skills_of(catalogue_of("refunds", "visits"), "refunds")
    with pytest.raises(ToolFailed, match="no skill 'refunds' is available"):
        await skills.of_call(A).read_file("refunds", "notes.md")


def test_where_none_is_left_nothing_is_suggested() -> None:
    with pytest.raises(ToolFailed, match="no skill 'refunds' is available any more, go on without it"):
        skills_of(catalogue_of("refunds"), "refunds").of_call(A).load("refunds")


def test_a_skill_that_a_model_must_not_choose_is_not_offered() -> None:
    skills = skills_of(catalogue_of("refunds", front="disable-model-invocation: true\n"))
    with pytest.raises(ToolFailed):
        skills.of_call(A).load("refunds")


def test_a_search_finds_what_is_offered_and_nothing_else() -> None:
    skills = skills_of(catalogue_of("refunds", "visits", "manners"), "visits")
    assert skills.of_call(A).search("visits and refunds", limit=5) == "refunds: About refunds."
    assert skills.of_call(A).search("visits", limit=5) == "no skill fits 'visits'"


def test_a_skill_that_shares_its_key_is_judged_itself(tmp_path: Path) -> None:
    put(tmp_path / "home", "refunds", text("refunds", extra="allowed-tools: look\n"))
    put(tmp_path / "home", "zz", text("refunds", extra="disable-model-invocation: true\n"))
    put(tmp_path / "home", "zzz", text("refunds"))
    skills = skills_of(load(tmp_path / "home"))

    with pytest.raises(ToolFailed, match="perhaps refunds"):
        skills.of_call(A).load("home:zz")
    skills.of_call(A).load("refunds")
    skills.of_call(B).load("home:zzz")

    first, second = skills.loaded_by(A), skills.loaded_by(B)
    assert first is not None
    assert second is not None
    assert (first.skill, first.allowed_tools) == ("refunds", ("look",))
    assert second.skill == "home:zzz"


@pytest.mark.parametrize("name", ["home:zz", "Home:ZZ"])
def test_a_skill_that_shares_its_key_is_as_good_as_off_where_that_key_is(tmp_path: Path, name: str) -> None:
    put(tmp_path / "home", "refunds", text("refunds"))
    put(tmp_path / "home", "zz", text("refunds"))
    put(tmp_path / "home", "visits")
    catalogue = load(tmp_path / "home")

    for skills in (skills_of(catalogue, "refunds"), skills_of(catalogue, allowed=("visits",))):
        with pytest.raises(ToolFailed, match="perhaps visits"):
            skills.of_call(A).load(name)


def test_a_misspelt_name_among_thousands_finds_those_that_share_a_word() -> None:
    offered = [f"letter-{number}" for number in range(5_000)] + ["refund-invoice"]
    skills = skills_of(catalogue_of(*offered))
    with pytest.raises(ToolFailed, match="perhaps refund-invoice") as refused:
        skills.named("invoice refund" + " x" * 1_000)
    assert len(str(refused.value)) < 200
