"""Somebody selects a record, asks a follow-up, corrects a detail and switches the task, in a window that is too small
for all of it: what the model is sent at each point."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.home.houses import Home, House, Model, living
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import head_of, text_block
from torpor.records.context import SelectedRecord, WorkingContext

SMALL = "You keep the memory of a conversation"
"""How the prompt of a summariser begins."""
CORRECTION = "Ada's dose is 10 mg, not 20"
FILLER = "And what else is there to know about the day, " + "in all the detail that there is, " * 60


class Assistant(Model):
    """Answers, and sums up as it is asked to, the correction among the open items."""

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        body = json.loads(bytes(request.preamble.body))
        if body["system"][0]["text"].startswith(SMALL):
            turns = request.view.messages().decode()
            opened = [{"kind": "correction", "text": CORRECTION, "turn": 3}] if CORRECTION in turns else []
            said = json.dumps({"facts": ["Ada Lovelace asked for her letter"], "open": opened})
        else:
            said = "Noted."
        block = text_block(said)
        sink.text(head_of(block).text)
        sink.block(block)
        if not body["system"][0]["text"].startswith(SMALL):
            self.requests.append({**body, "messages": json.loads(request.view.messages())})
        return ModelReply(blocks=(block,), stop_reason="end_turn")


def patient(id_: str, name: str) -> WorkingContext:
    return WorkingContext(record=SelectedRecord(type="patient", id=id_, version="3", text=name))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.settings()
    home.profile("narrow", budget_tokens=6_000, headroom_tokens=800)
    home.agent(profile="narrow", max_tokens=500)
    agent = home.path / "config/agents/clerk.toml"
    agent.write_text(agent.read_text() + '\n[summary]\nmodel = { kind = "scripted", rehearsal = "any" }\n')
    return home


def texts(request: dict[str, Any]) -> list[str]:
    return [block["text"] for message in request["messages"] for block in message["content"] if block["type"] == "text"]


async def folds(house: House) -> int:
    return len(await house.records("context_replaced"))


async def test_what_was_corrected_and_what_is_selected_are_in_every_request(home: Home) -> None:
    model = Assistant()
    async with living(home, model=model) as house:
        await house.tell(patient("p-1", "Ada Lovelace"))
        await house.ask("What does she take?")
        selected = texts(model.requests[-1])
        await house.ask("Why that dose?")
        follow_up = texts(model.requests[-1])
        await house.ask(f"I was wrong before: {CORRECTION}.")
        corrected_at = len(model.requests)
        for _ in range(8):
            await house.ask(FILLER)
        await house.tell(patient("p-2", "Grace Hopper"))
        await house.ask("And what does she take?")
        switched = texts(model.requests[-1])
        for _ in range(8):
            await house.ask(FILLER)
        last = texts(model.requests[-1])
        folded = await folds(house)

    assert folded >= 2
    assert selected[0].startswith('<context version="1">')
    assert "Ada Lovelace" in selected[0]
    assert follow_up[:3] == [*selected, "Noted."]  # the answer that the follow-up is about, word for word
    assert all(any(CORRECTION in text for text in texts(request)) for request in model.requests[corrected_at - 1 :])
    assert last[0].startswith("[Summary of earlier conversation: ")
    assert f"(correction, turn 3): {CORRECTION}" in last[0]
    contexts = [text for text in switched if text.startswith("<context ")]
    assert contexts[-1].startswith('<context version="2">')
    assert "Grace Hopper" in contexts[-1]
    assert "Ada Lovelace" not in contexts[-1]
    assert switched[-1] == "And what does she take?"
    assert "Ada Lovelace" not in "".join(text for text in last if text.startswith("<context "))
