"""A companion that still knows of a worry when the turns that told of it have left its window."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.home.houses import DEADLINE_S, Home, House, Model, kinds, living
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.provider_errors import KeyRefused
from torpor.records.blocks import text_block
from torpor.turn.live_context import DEFAULT_PROMPT

LIVE = '\n[live_context]\nmodel = { kind = "scripted", rehearsal = "any" }\n'
WORRY = "I am afraid of the biopsy on Friday"
FOUND = "Afraid of the biopsy on Friday; wants company and a plain word about what comes next."
CALM = "Calm, chatting about the garden, needs nothing in particular."
LONG = "The beans came up and the fence is painted, and we talked about the neighbours for a while. " * 4


class Companion(Model):
    """Plays two parts: it talks, and it says how things stand."""

    def __init__(self) -> None:
        super().__init__()
        self.moods: list[str] = []
        """What it says of how things stand, in order; an empty one is a failure, as is every one behind the last."""
        self.read: list[str] = []
        """What it was given to say it from."""

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        preamble = json.loads(bytes(request.preamble.body))
        if preamble["system"][0]["text"] != DEFAULT_PROMPT:
            return await super().reply(request, sink)
        self.read.append(request.view.text().decode())
        if not (words := self.moods.pop(0) if self.moods else ""):
            raise KeyRefused("simulated")
        return ModelReply(blocks=(text_block(words),), stop_reason="end_turn")

    @property
    def last(self) -> dict[str, Any]:
        """The last request of a turn."""
        request: dict[str, Any] = json.loads(self.bodies[-1])
        return request


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    keeps_live_context(home, "companion")
    return home


def keeps_live_context(home: Home, name: str) -> None:
    home.agent(name, profile="companion")
    with (home.path / f"config/agents/{name}.toml").open("a") as file:
        file.write(LIVE)


async def talk(house: House, *, first: int, last: int) -> None:
    """Exchanges about nothing; the n-th one is messages 2n - 1 and 2n."""
    for number in range(first, last + 1):
        await house.ask(f"exchange {number}: the beans are fine", agent="companion")


def live_in(request: dict[str, Any]) -> list[str]:
    return [block["text"] for block in request["system"] if block["text"].startswith("<live_context")]


async def test_a_worry_is_in_the_request_when_the_history_no_longer_holds_it(home: Home) -> None:
    companion = Companion()
    companion.moods = [CALM, FOUND]
    async with living(home, model=companion) as house:
        await talk(house, first=1, last=1)
        await house.until_event("live_context.replaced")
        await talk(house, first=2, last=12)
        await house.ask(f"{LONG}{WORRY}", agent="companion")
        await talk(house, first=14, last=16)
        await house.until_event("live_context.replaced")
        await talk(house, first=17, last=25)
        with anyio.fail_after(DEADLINE_S):
            await house.client.refresh("c1")
        await house.until_event("live_context.failed")
        await talk(house, first=26, last=35)
        orders = await house.records("live_context_ordered")
        failed = await house.records("live_context_failed")
        folds = await house.records("context_replaced")

    assert [(order["reason"], order["messages"]) for order in orders] == [
        ("first", 2),
        ("messages", 32),
        ("hand", 50),
        ("messages", 62),
        ("messages", 68),
    ]
    assert {record["code"] for record in failed} == {KeyRefused.code}
    assert WORRY in companion.read[1]
    assert "exchange 4:" not in companion.read[1]
    assert "exchange 5:" in companion.read[1]
    assert folds
    request = companion.last
    assert len(live_in(request)) == 1
    assert FOUND in live_in(request)[0]
    assert WORRY not in json.dumps(request["messages"])
    assert json.dumps(request["messages"]).count("exchange 34:")


async def test_two_agents_that_share_an_owner_keep_theirs_apart(home: Home) -> None:
    keeps_live_context(home, "coach")
    companion = Companion()
    async with living(home, model=companion) as house:
        for name, words in (("companion", FOUND), ("coach", CALM)):
            companion.moods.append(words)
            await house.ask(f"hello {name}", conversation=name, agent=name)
            await house.until_event("live_context.replaced", conversation=name)
        told = {}
        for name in ("companion", "coach"):
            await house.ask("and now?", conversation=name, agent=name)
            (told[name],) = live_in(companion.last)

    assert "biopsy" in told["companion"]
    assert "garden" not in told["companion"]
    assert "garden" in told["coach"]
    assert "biopsy" not in told["coach"]
    assert "hello coach" not in companion.read[0]
    assert "hello companion" not in companion.read[1]


async def test_what_is_switched_off_costs_nothing(home: Home) -> None:
    companion = Companion()
    companion.moods = [CALM]
    async with living(home, model=companion) as house:
        await house.ask("hello", agent="companion")
        await house.until_event("live_context.replaced")
        await house.ask("and now?", agent="companion")
        on = companion.last
        await house.after("flags.changed", lambda: home.flags(live_context=False))
        with anyio.fail_after(DEADLINE_S):
            await house.client.refresh("c1")
        heard = [await house.ask(f"{number}", agent="companion") for number in range(16)]
        off = companion.last
        requests = await house.records("model_requested")
        orders = await house.records("live_context_ordered")

    assert len(live_in(on)) == 1
    assert off["system"] == on["system"][:-1]
    assert "live_context" in requests[1]["sections"]
    assert not any("live_context" in request["sections"] or request.get("live") for request in requests[2:])
    assert not any(kind.startswith("live_context") for events in heard for kind in kinds(events))
    assert [order["reason"] for order in orders] == ["first"]
