"""An offer is made of what is allowed and on, once for all that are equal, and costs what it says."""

from typing import Any

import msgspec
import pytest

from tests.support.doubles import FakeToolbox, Ledger, PlayedModel, reads
from tests.support.skills import catalogue_of
from torpor.conversation.budget import Profile, encoded_tokens
from torpor.errors import ConfigError
from torpor.flags.contract import EVERYTHING_ON, Decided, defaulted
from torpor.skillbook.catalogue import Catalogue
from torpor.toolhost.skill_tools import LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition
from torpor.turn.offer import EDITIONS_MAX, OFFERS_MAX, Offer, sections_in, tools_in
from torpor.turn.prepare import NO_SKILLS

SKILL_TOOLS = {LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS}


def agent(*tools: str, profile: Profile | None = None, budget_tokens: int = 2_000, **fields: Any) -> Agent:
    table = {"name": "clerk", "system": "You are a clerk.", "model": {"kind": "played"}} | fields
    names = (*(tools or ("look", "pay")), "read_result", *SKILL_TOOLS)
    return Agent(
        msgspec.convert(table, AgentDefinition),
        model=PlayedModel(),
        toolbox=FakeToolbox(map(reads, names), ledger=Ledger()),
        profile=profile or Profile(),
        index_budget_tokens=budget_tokens,
    )


def off(*keys: str) -> Decided:
    return Decided(defaulted(key, default=False, reason="STATIC") for key in keys)


def many(number: int) -> Catalogue:
    return catalogue_of(*(f"skill-{at:03}" for at in range(number)))


def system(offer: Offer) -> list[str]:
    return [block["text"] for block in msgspec.json.decode(offer.preamble.body).get("system", [])]


def test_equal_offers_are_made_once() -> None:
    one, skills = agent(), catalogue_of("refunds")
    assert one.offer(EVERYTHING_ON, skills) is one.offer(Decided(()), catalogue_of("refunds"))
    assert one.offer(off("tool.pay"), skills) is one.offer(off("tool.pay"), skills)
    assert one.offer(off("tool.pay"), skills) is not one.offer(EVERYTHING_ON, skills)


def test_a_flag_that_is_on_and_one_of_something_else_give_the_same_bytes() -> None:
    on = Decided([defaulted("tool.pay", default=True, reason="STATIC")])
    plain = agent().offer(EVERYTHING_ON, NO_SKILLS).preamble
    assert agent().offer(on, NO_SKILLS).preamble == plain
    assert agent().offer(off("tool.elsewhere", "subagent.planner"), NO_SKILLS).preamble == plain


def test_without_skills_there_is_neither_an_index_nor_a_tool_for_them() -> None:
    skills = catalogue_of("refunds", "visits")
    plain = agent().offer(EVERYTHING_ON, NO_SKILLS)
    assert not plain.tools & SKILL_TOOLS
    assert system(plain) == ["You are a clerk."]
    assert plain.sections["skill_index"] == 0
    for other in (
        agent().offer(off("skill.refunds", "skill.visits"), skills),
        agent(skills=[]).offer(EVERYTHING_ON, skills),
        agent(skills=["elsewhere"]).offer(EVERYTHING_ON, skills),
        agent().offer(EVERYTHING_ON, catalogue_of("refunds", front="disable-model-invocation: true\n")),
    ):
        assert other.preamble == plain.preamble
        assert dict(other.skills) == {}


def test_a_blank_prompt_is_left_out_and_the_index_stands_alone() -> None:
    (index,) = system(agent(system="  ").offer(EVERYTHING_ON, catalogue_of("refunds")))
    assert index.startswith("<available_skills>")
    assert "system" not in msgspec.json.decode(agent(system="").offer(EVERYTHING_ON, NO_SKILLS).preamble.body)


def test_a_search_is_offered_where_skills_are_left_out_and_they_stay_to_be_had() -> None:
    few, some = agent().offer(EVERYTHING_ON, many(40)), agent(budget_tokens=64).offer(EVERYTHING_ON, many(40))
    assert few.tools & SKILL_TOOLS == {LOAD_SKILL, READ_SKILL_FILE}
    assert some.tools & SKILL_TOOLS == SKILL_TOOLS
    assert len(few.skills) == len(some.skills) == 40
    assert "skill-039" not in system(some)[1]


@pytest.mark.parametrize("fixed_tokens", [350, 400, 500, 700, 1_200])
@pytest.mark.parametrize("number", [1, 20, 60, 300])
def test_an_index_takes_no_more_than_the_profile_leaves_for_it(fixed_tokens: int, number: int) -> None:
    bounded = agent(profile=Profile(fixed_tokens=fixed_tokens))
    offer = bounded.offer(EVERYTHING_ON, many(number))
    assert sum(offer.sections.values()) <= fixed_tokens
    bounded.offers.check(EVERYTHING_ON, many(number))


def test_fixed_parts_over_a_cap_are_refused_with_the_numbers() -> None:
    for bounded, key in (
        (agent(profile=Profile(fixed_tokens=20)), "profile"),
        (agent(fixed_tokens_max=20), "fixed_tokens_max"),
    ):
        with pytest.raises(ConfigError) as refused:
            bounded.offers.check(EVERYTHING_ON, NO_SKILLS)
        assert key in str(refused.value)
        assert "instructions 11" in str(refused.value)
        assert "at most 20" in str(refused.value)


def test_fixed_parts_that_leave_no_room_in_the_budget_are_refused_with_the_numbers() -> None:
    used = sum(agent("look").offer(EVERYTHING_ON, NO_SKILLS, has_earlier=True).sections.values())
    agent("look", profile=Profile(budget_tokens=used + 11, headroom_tokens=10)).offers.check(EVERYTHING_ON, NO_SKILLS)
    tight = agent("look", profile=Profile(budget_tokens=used + 10, headroom_tokens=10))
    with pytest.raises(ConfigError, match=rf"{used} tokens .*at most {used - 1} by its budget, less the reply"):
        tight.offers.check(EVERYTHING_ON, NO_SKILLS)


def test_what_an_offer_says_of_itself_is_what_its_preamble_holds() -> None:
    offer = agent().offer(off("tool.pay"), catalogue_of("refunds"))
    assert offer.tools == tools_in(offer.preamble)
    assert offer.sections == sections_in(offer.preamble)
    body = msgspec.json.decode(offer.preamble.body)
    assert sum(offer.sections.values()) == pytest.approx(encoded_tokens([body["system"], body["tools"]]), abs=4)


def test_preambles_of_another_time_are_told_from_their_text() -> None:
    before, now = agent("look", "gone"), agent("look")
    old = before.offer(EVERYTHING_ON, catalogue_of("refunds")).preamble
    assert "gone" in now.offers.tools_of(old)
    assert now.offers.sections_of(old) == before.offers.sections_of(old)
    assert now.interned(old) is old


def test_the_oldest_offer_goes_when_there_are_too_many_and_can_be_made_again() -> None:
    one = agent()
    first = one.offer(off("tool.pay"), NO_SKILLS)
    for number in range(OFFERS_MAX):
        one.offer(off(f"skill.x-{number}"), NO_SKILLS)
    again = one.offer(off("tool.pay"), NO_SKILLS)
    assert again is not first
    assert again.preamble == first.preamble
    assert one.offers.tools_of(first.preamble) == first.tools
    assert repr(one.offers) == f"<Offers ready={OFFERS_MAX}>"


def test_offers_of_the_last_editions_of_the_skills_alone_are_kept() -> None:
    one = agent()
    for edition in range(2 * EDITIONS_MAX):
        catalogue = catalogue_of("refunds", edition=edition)
        for flags in (EVERYTHING_ON, off("tool.pay")):
            one.offer(flags, catalogue)
    assert repr(one.offers) == f"<Offers ready={2 * EDITIONS_MAX}>"
    last = catalogue_of("refunds", edition=2 * EDITIONS_MAX)
    assert one.offer(EVERYTHING_ON, last).catalogue is last
