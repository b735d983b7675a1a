"""The models that work beside conversations: one summarises what is folded, one says how things stand.

They know what they are told in the question, and say it again, so that a judge can tell whether anything got lost on
the way: a summary names every message that it stands for, once. A conversation in the folder of those they are muddled
by gets nothing usable out of them.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from tests.support.obedient_model import WISH
from torpor.model.contract import Model, ModelReply, ModelRequest, ReplySink
from torpor.records.blocks import text_block
from torpor.records.terms import Usage

TURN: Final = "model"
SUMMARY: Final = "summary"
LIVE: Final = "live"
CHILD: Final = "child"
GRANDCHILD: Final = "grandchild"
PURPOSES: Final = {
    "Summarise.": SUMMARY,
    "Tell how things stand.": LIVE,
    "You are a scout.": CHILD,
    "You are a tracker.": GRANDCHILD,
}
"""By the first line of the prompt, as the files of the home have it."""
MUDDLED: Final = "muddled"
"""The folder; a mark is named ``<purpose>-<conversation>``."""
_SPEAKER: Final = re.compile(r"\b(\w+) says: ")
_SO_FAR: Final = re.compile(r"^Summary so far:\n(\{.*\})$", re.MULTILINE)
_ITEM: Final = re.compile(r"^(i\d+-\d+) \(", re.MULTILINE)
_TURN: Final = re.compile(r"^Turn (\d+)", re.MULTILINE)


def purpose_of(request: ModelRequest) -> str:
    """What the request is for."""
    system = msgspec.json.decode(request.preamble.body).get("system", [])
    return PURPOSES.get(system[0]["text"].partition("\n")[0], TURN) if system else TURN


class SideModel:
    """Implements ``model.contract.Model``: answers in the place of both, and hands all turns on to ``model``."""

    def __init__(self, model: Model, home: Path) -> None:
        self._model = model
        self._muddled = home / MUDDLED

    def request_fields(self) -> Mapping[str, Any]:
        return self._model.request_fields()

    async def warm(self) -> None:
        await self._model.warm()

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        purpose = purpose_of(request)
        if purpose in {TURN, CHILD, GRANDCHILD}:
            return await self._model.reply(request, sink)
        question = json.loads(request.view.messages())[0]["content"][0]["text"]
        await anyio.lowlevel.checkpoint()
        words = ""
        if not self._is_muddled(purpose, question):
            words = _summary(question) if purpose == SUMMARY else _live(question)
        blocks = (text_block(words),) if words else ()
        return ModelReply(blocks=blocks, stop_reason="end_turn", usage=Usage(input_tokens=1, output_tokens=1))

    def _is_muddled(self, purpose: str, question: str) -> bool:
        speaker = _SPEAKER.search(question)
        return speaker is not None and (self._muddled / f"{purpose}-{speaker[1]}").exists()


def _summary(question: str) -> str:
    told, _, turns = question.partition("Turns to fold:")
    so_far = _SO_FAR.search(told)
    facts: list[str] = json.loads(so_far[1]).get("facts", []) if so_far else []
    named = [message for fact in facts for message in fact.removeprefix("Told: ").split(", ")]
    named += [wish[1] for wish in WISH.finditer(turns)]
    last_turn = int(_TURN.findall(turns)[-1])
    return json.dumps(
        {
            "facts": [f"Told: {', '.join(named)}"],
            "open": [{"kind": "question", "text": f"what comes after turn {last_turn}?", "turn": last_turn}],
            "closed": [{"id": item, "turn": last_turn} for item in _ITEM.findall(told)],
        }
    )


def _live(question: str) -> str:
    return f"It has come to {[wish[1] for wish in WISH.finditer(question)][-1]}"
