"""What is offered is pinned; what is allowed is asked at each call."""

from collections.abc import Sequence

import pytest

from torpor.conversation.state import LoadedSkill
from torpor.conversation.view import preamble_of
from torpor.flags.contract import Decided, defaulted
from torpor.records.terms import Outcome
from torpor.toolhost.engine_tools import ALWAYS_OFFERED, ENGINE_TOOL_NAMES
from torpor.turn.offer import tools_in
from torpor.turn.permits import Permits

OFFERED = frozenset({"look", "pay", *ENGINE_TOOL_NAMES})
REFUNDS = LoadedSkill(key="refunds", digest="d", allowed_tools=("pay",))
VISITS = LoadedSkill(key="visits", digest="d", allowed_tools=("look",))
CHATTER = LoadedSkill(key="chatter", digest="d")


def permits(
    *off: str, skills: Sequence[LoadedSkill] = (), is_restricted: bool = False, offered: frozenset[str] = OFFERED
) -> Permits:
    decided = Decided(defaulted(key, default=False, reason="STATIC") for key in off)
    return Permits(offered=offered, gates={}, decided=decided, skills=skills, is_restricted=is_restricted)


@pytest.mark.parametrize("name", sorted(OFFERED))
def test_what_is_offered_and_not_switched_off_may_be_called(name: str) -> None:
    assert permits().refusal(name) is None


def test_a_name_that_the_model_made_up_fails_and_says_what_there_is() -> None:
    refusal = permits(offered=frozenset({"pay", "look"})).refusal("transfer")
    assert refusal is not None
    assert refusal.outcome is Outcome.FAILED
    assert "'transfer'" in refusal.text
    assert refusal.text.index("look") < refusal.text.index("pay")


def test_a_tool_that_was_not_offered_is_unknown_even_where_its_flag_is_on() -> None:
    refusal = permits(offered=frozenset({"look"})).refusal("pay")
    assert refusal is not None
    assert refusal.outcome is Outcome.FAILED


def test_a_tool_switched_off_since_it_was_offered_is_denied_at_once() -> None:
    refusal = permits("tool.pay").refusal("pay")
    assert refusal is not None
    assert (refusal.outcome, refusal.text) == (
        Outcome.DENIED,
        "Not executed: pay is switched off. Nothing was done; go on without it.",
    )
    assert permits("tool.pay").refusal("look") is None
    assert permits("skill.pay").refusal("pay") is None


def test_what_must_always_be_offered_cannot_be_switched_off() -> None:
    assert permits("tool.read_result").refusal("read_result") is None


@pytest.mark.parametrize("name", sorted(ENGINE_TOOL_NAMES - ALWAYS_OFFERED))
def test_a_tool_of_the_engine_can_be_switched_off_too(name: str) -> None:
    refusal = permits(f"tool.{name}").refusal(name)
    assert refusal is not None
    assert refusal.outcome is Outcome.DENIED


def test_what_a_skill_says_of_tools_is_advice_unless_the_agent_makes_it_a_restriction() -> None:
    assert permits(skills=[REFUNDS]).refusal("look") is None
    refusal = permits(skills=[REFUNDS], is_restricted=True).refusal("look")
    assert refusal is not None
    assert refusal.outcome is Outcome.DENIED
    assert "look is none of the tools that the skills in use (refunds) allow" in refusal.text


def test_a_restriction_leaves_the_tools_of_the_skills_in_use_and_those_of_the_engine() -> None:
    restricted = permits(skills=[REFUNDS, CHATTER], is_restricted=True)
    assert [restricted.refusal(name) for name in ("pay", *sorted(ENGINE_TOOL_NAMES))] == [None] * (
        1 + len(ENGINE_TOOL_NAMES)
    )


def test_skills_in_use_together_allow_what_any_of_them_allows() -> None:
    restricted = permits(skills=[REFUNDS, VISITS], is_restricted=True)
    assert (restricted.refusal("pay"), restricted.refusal("look")) == (None, None)


def test_a_skill_that_names_no_tools_restricts_nothing() -> None:
    assert permits(skills=[CHATTER], is_restricted=True).refusal("look") is None
    assert permits(is_restricted=True).refusal("look") is None


def test_a_tool_that_a_skill_allows_can_still_be_switched_off() -> None:
    refusal = permits("tool.pay", skills=[REFUNDS], is_restricted=True).refusal("pay")
    assert refusal is not None
    assert "switched off" in refusal.text


def test_what_a_preamble_offers_is_told_from_its_text() -> None:
    assert tools_in(preamble_of({"tools": [{"name": "look"}, {"name": "pay"}]})) == {"look", "pay"}
    assert tools_in(preamble_of({"model": "m"})) == frozenset()
