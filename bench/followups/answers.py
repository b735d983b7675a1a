"""What a real model makes of the requests, and summaries by it: only with a key, or with a model file on this machine.

An answer counts when it holds a wording of every fact that its follow-up needs. That is a match of strings, no
judgement: a right answer in other words is missed, and a wrong one that names the facts passes.
"""

import json
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from bench.followups.compare import Case, Outcome
from bench.followups.conversations import plain
from torpor.clock import RandomIds, SystemClock
from torpor.conversation.publish import text_of
from torpor.conversation.view import Preamble, View, preamble_of
from torpor.model.circuit import CircuitOptions
from torpor.model.contract import Model, ModelRequest
from torpor.model.registry import ModelRegistry
from torpor.provider_errors import ProviderError
from torpor.records.blocks import Block, canonical

_DEADLINE_S: Final = 300.0
_REPLY_TOKENS: Final = 200
_SYSTEM: Final = (
    "You assist the staff of a clinic. Answer the last message in one or two sentences, with the exact figures and "
    "names that it is about. When they are not in what you see, say that you do not know."
)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One policy's answers."""

    policy: str
    asked: int
    matched: int
    """Answers with a wording of every fact that was needed."""
    failed: int
    """Without an answer: nothing could be sent, or the model's host gave none."""


@asynccontextmanager
async def opened(table: dict[str, Any]) -> AsyncIterator[Model]:
    """The model of an agent's ``[model]`` table. Raises: ConfigError: it cannot be used, or its key is missing."""
    registry = ModelRegistry(
        home=Path.cwd(), environ=os.environ, clock=SystemClock(), ids=RandomIds(), circuit=CircuitOptions()
    )
    model = registry.model(table, where="--model")
    async with registry.opened():
        yield model


async def answered(model: Model, name: str, told: Iterable[tuple[Case, tuple[Outcome, ...]]]) -> list[Answered]:
    """Ask every request again, of each policy. Args: name: of the model."""
    counts = dict[str, list[int]]()
    for case, outcomes in told:
        for outcome in outcomes:
            count = counts.setdefault(outcome.policy, [0, 0, 0])
            for place, body in zip(case.places, outcome.bodies, strict=True):
                count[0] += 1
                said = await _asked(model, name, body) if body is not None else ""
                needs = case.conversation.follow_ups[place].needs
                count[1] += bool(said) and all(fact.stands_in(plain(said)) for fact in needs)
                count[2] += not said
    return [
        Answered(policy=policy, asked=asked, matched=matched, failed=failed)
        for policy, (asked, matched, failed) in counts.items()
    ]


async def _asked(model: Model, name: str, body: bytes) -> str:
    """What the model says; empty when its host fails."""
    fields: dict[str, Any] = json.loads(body)
    view = View()
    for message in fields.pop("messages"):
        view = view.extended(message["role"], map(canonical, message["content"]))
    request = ModelRequest(call="1-1-1", preamble=_preamble(model, name, fields), view=view)
    with anyio.move_on_after(_DEADLINE_S):
        try:
            return text_of((await model.reply(request, Unheard())).blocks)
        except ProviderError:
            return ""
    return ""


def _preamble(model: Model, name: str, fields: dict[str, Any]) -> Preamble:
    own = {"model": name, "max_tokens": _REPLY_TOKENS, "system": [{"type": "text", "text": _SYSTEM}]}
    return preamble_of({**fields, **model.request_fields(), **own})


class Unheard:
    """Implements ``model.contract.ReplySink``: nobody watches."""

    def text(self, piece: str) -> None:
        del piece

    def block(self, block: Block) -> None:
        del block
