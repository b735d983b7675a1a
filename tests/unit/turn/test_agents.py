"""An agent is its definition with its parts; its preamble moves only when the home does."""

from typing import Any

import msgspec
import pytest

from tests.support.doubles import FakeToolbox, Ledger, PlayedModel, reads, writes
from tests.support.request_rules import violations
from torpor.conversation.view import Preamble, View, request_body
from torpor.flags.contract import EVERYTHING_ON
from torpor.records.blocks import text_block
from torpor.turn.agents import Agent, Agents
from torpor.turn.definition import AgentDefinition
from torpor.turn.prepare import NO_SKILLS


def definition(**changes: Any) -> AgentDefinition:
    fields = {"name": "clerk", "system": "You are a clerk.", "model": {"kind": "played"}}
    return msgspec.convert(fields | changes, AgentDefinition)


def agent(*tools: str, **changes: Any) -> Agent:
    toolbox = FakeToolbox([reads(name) for name in tools or ("look",)], ledger=Ledger())
    return Agent(definition(**changes), model=PlayedModel(), toolbox=toolbox)


def preamble(of: Agent) -> Preamble:
    """With every flag on, and no skills."""
    return of.offer(EVERYTHING_ON, NO_SKILLS).preamble


def test_the_preamble_holds_what_stands_before_the_messages() -> None:
    assert msgspec.json.decode(preamble(agent("look", max_tokens=7)).body) == {
        "model": "played",
        "max_tokens": 7,
        "system": [{"type": "text", "text": "You are a clerk."}],
        "tools": [
            {
                "name": "look",
                "description": "The tool look.",
                "input_schema": {"type": "object", "properties": {}},
            }
        ],
    }


def test_the_model_is_named_by_its_table_or_else_by_its_kind() -> None:
    named = agent(model={"kind": "played", "model": "some-model"})
    assert msgspec.json.decode(preamble(named).body)["model"] == "some-model"


def test_tools_are_sorted_by_name_whatever_their_order() -> None:
    assert preamble(agent("b", "a", "c")) == preamble(agent("c", "b", "a"))
    names = [tool["name"] for tool in msgspec.json.decode(preamble(agent("b", "a")).body)["tools"]]
    assert names == ["a", "b"]


def test_equal_definitions_give_equal_preambles_and_every_change_another() -> None:
    digests = {
        preamble(agent()).digest,
        preamble(agent()).digest,
        preamble(agent(system="You are a cook.")).digest,
        preamble(agent(max_tokens=1)).digest,
        preamble(agent("look", "listen")).digest,
    }
    assert len(digests) == 4


def test_the_effect_of_a_tool_is_no_business_of_the_model() -> None:
    toolbox = FakeToolbox([writes("look")], ledger=Ledger())
    assert preamble(Agent(definition(), model=PlayedModel(), toolbox=toolbox)) == preamble(agent("look"))


def test_a_request_with_the_preamble_is_valid() -> None:
    view = View().extended("user", [text_block("hello")])
    assert violations(msgspec.json.decode(request_body(preamble(agent()), view))) == []


def test_the_fixed_sections_are_counted_with_the_offer() -> None:
    sections = agent("look").offer(EVERYTHING_ON, NO_SKILLS).sections
    assert sections["instructions"] > 0
    assert sections["tools"] > 0
    assert sections["skill_index"] == 0
    assert repr(agent()).startswith("<Agent clerk ")


def test_an_unknown_field_of_a_definition_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field `sistem`"):
        definition(sistem="x")


def test_agents_are_found_by_name_and_an_empty_name_means_the_default() -> None:
    clerk, cook = agent(name="clerk"), agent(name="cook", default=True)
    agents = Agents((clerk, cook))
    assert (agents.get("clerk"), agents.get("cook"), agents.get("")) == (clerk, cook, cook)
    assert agents.get("nobody") is None
    assert agents.names() == ("clerk", "cook")


def test_the_first_agent_is_the_default_when_none_says_so() -> None:
    clerk, cook = agent(name="clerk"), agent(name="cook")
    assert Agents((clerk, cook)).get("") is clerk
    assert Agents(()).get("") is None
