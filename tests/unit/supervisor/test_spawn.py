"""Sub-agents work for a call, under its fence and within their budgets, and nothing of them but the answer stays."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.doubles import Gate, Ledger, calls, fails, reads, replies, says, stops_at, use, waits
from tests.support.engine import KEY, running_engine
from tests.support.subagents import spawning, subagent
from torpor.provider_errors import ProviderUnavailable
from torpor.records.journal import (
    JournalRecord,
    ModelRequested,
    Outcome,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    TurnCancelled,
    TurnFinished,
    Usage,
)
from torpor.subagents.options import SubagentOptions


def asks(name: str, task: str = "find out", *, call_id: str = "a") -> Any:
    """A model that has the sub-agent ``name`` work, and is done."""
    return calls(use(name, call_id, task=task))


def result_of(records: tuple[JournalRecord, ...], number: int = 0) -> ToolFinished:
    return [record for record in records if isinstance(record, ToolFinished)][number]


def ended(records: tuple[JournalRecord, ...]) -> list[SubagentFinished]:
    return [record for record in records if isinstance(record, SubagentFinished)]


def told(result: ToolFinished) -> str:
    block: dict[str, Any] = msgspec.json.decode(result.block)
    return str(block["content"])


async def test_parent_gets_the_answer_and_nothing_else(records: None = None) -> None:
    scout = subagent("scout", calls(use("look", "b", about="it"), text="let me see"), says("it is there"))
    async with running_engine(
        asks("scout"), says("done"), tools=[spawning("scout")], subagents={"scout": scout}
    ) as engine:
        await engine.insist("where is it?")
        await engine.rested()
        records = await engine.records()
    result, (finished,) = result_of(records), ended(records)
    assert (result.outcome, json.loads(told(result))) == (Outcome.SUCCEEDED, {"answer": "it is there"})
    assert (finished.outcome, finished.code, finished.rounds, finished.name) == (Outcome.SUCCEEDED, "", 2, "scout")
    assert "let me see" not in str(engine.model.requests)
    assert engine.model.refused == []
