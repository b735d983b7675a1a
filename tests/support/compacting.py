"""Engines with a small window, and what is seen of their requests: for tests of compaction."""

import json
import math
from typing import Any

import msgspec

from tests.support.doubles import Play, PlayedModel, echo, says
from tests.support.engine import Engine
from torpor.conversation.budget import Profile
from torpor.conversation.view import request_body
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.journal import ContextReplaced
from torpor.records.terms import Usage

LONG = "x" * 1_200
SMALL = Profile(budget_tokens=6_000, headroom_tokens=500)
"""Enough for about eight turns of ``LONG``."""


def summary(*facts: str, **fields: Any) -> str:
    """A summariser's answer as it is asked for."""
    return json.dumps({"facts": list(facts) or ["the user counts"], **fields})


def item(kind: str, text: str, turn: int = 1) -> dict[str, Any]:
    return {"kind": kind, "text": text, "turn": turn}


def always(play: Play) -> PlayedModel:
    """A model that does the same at every call."""
    return PlayedModel([play] * 1_000)


def summarising(*facts: str) -> PlayedModel:
    return always(says(summary(*facts)))


def uncounted(play: Play) -> Play:
    """The same, by a host that counts nothing."""

    async def without(request: ModelRequest, sink: ReplySink) -> ModelReply:
        return msgspec.structs.replace(await play(request, sink), usage=Usage())

    return without


async def counted(request: ModelRequest, sink: ReplySink) -> ModelReply:
    """Echoes, and counts the request as a host does: four bytes a token."""
    size_bytes = len(request_body(request.preamble, request.view))
    reply = await echo(request, sink)
    said_bytes = sum(len(memoryview(block)) for block in reply.blocks)
    usage = Usage(input_tokens=math.ceil(size_bytes / 4), output_tokens=math.ceil(said_bytes / 4))
    return msgspec.structs.replace(reply, usage=usage)


async def fill(engine: Engine, turns: int = 9, *, begin: int = 0) -> None:
    """Turns of some length, numbered."""
    for number in range(begin, begin + turns):
        await engine.ask(f"{number} {LONG}")


async def fill_until_folded(engine: Engine, *, folds: int = 1, turns_max: int = 40) -> int:
    """Go on until the view was replaced so often. Returns: the turns it took."""
    for number in range(turns_max):
        if len(await engine.records_of(ContextReplaced)) >= folds:
            return number
        await engine.ask(f"{number} {LONG}")
    raise AssertionError(f"{turns_max} turns were not folded {folds} times")


async def next_request(engine: Engine) -> dict[str, Any]:
    """The request as it would be now, without a new message."""
    state = await engine.state()
    body: dict[str, Any] = json.loads(request_body(state.preamble, state.view))
    return body


def texts(request: dict[str, Any]) -> list[str]:
    return [block["text"] for message in request["messages"] for block in message["content"] if block["type"] == "text"]


def blocks(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [block for message in request["messages"] for block in message["content"]]


def head(request: dict[str, Any]) -> str:
    """The summary; empty when there is none."""
    first = texts(request)[0]
    return first if first.startswith("[Summary of earlier conversation: ") else ""
