"""Another server takes a conversation over while a sub-agent works there, and one that works for that: one medium, two
engines, real leases."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import Gate, ManualClock, Play, PlayedModel, calls, says, use, waits
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, running_engine
from tests.support.subagents import (
    asks,
    begun,
    children,
    ended,
    later_ids,
    results_of,
    said,
    searching,
    spawning,
    subagent,
)
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, TurnFinished
from torpor.records.terms import Usage
from torpor.subagents.definition import Subagent
from torpor.subagents.research import Research
from torpor.supervisor.options import SupervisorOptions

NO_SWEEP = msgspec.structs.replace(QUICK, sweep_s=3600.0)
"""One look at the start and never again, as of a process that was stopped for a while."""
ANSWER = json.dumps({"source_ids": ["s1"], "planner_reflection": "enough"})


def used(play: Play) -> Play:
    """A reply of one token."""

    async def costs(request: ModelRequest, sink: ReplySink) -> ModelReply:
        return msgspec.structs.replace(await play(request, sink), usage=Usage(input_tokens=1))

    return costs


class Family:
    """``scout``, which has ``deep`` work, and an agent that has ``scout`` work; the last reply of ``deep`` waits."""

    def __init__(self, *plays: Play, gate: Gate) -> None:
        """Args: plays: the agent's model's."""
        search = used(calls(use("search", "a", ids=["s1"])))
        self.models = {
            "clerk": PlayedModel(plays),
            "scout": PlayedModel([used(asks("deep")), used(says("it is there"))]),
            "deep": PlayedModel([search, waits(gate, used(says(ANSWER)))]),
        }

    @property
    def subagents(self) -> dict[str, Subagent]:
        return {
            "scout": subagent("scout", host=self.models["scout"], tools=[spawning("deep")]),
            "deep": subagent("deep", host=self.models["deep"], tools=[searching()], result=Research()),
        }

    def parts(self, **others: Any) -> dict[str, Any]:
        """Of an engine."""
        return {
            "host": self.models["clerk"],
            "tools": [spawning("scout")],
            "subagents": self.subagents,
            **others,
        }

    def asked(self) -> dict[str, int]:
        """How many requests each model has had."""
        return {name: len(model.requests) for name, model in self.models.items()}


async def journals_of(engine: Engine) -> dict[ConversationKey, list[JournalRecord]]:
    """Of the conversation and everybody below it."""
    keys = (KEY, *await children(engine))
    return {key: list(await engine.records(key)) for key in keys}


async def left(engine: Engine) -> None:
    """Return once the conversation does not live there any more."""
    with anyio.fail_after(DEADLINE_S):
        while engine.supervisor.live_status(KEY) is not None:
            await anyio.lowlevel.checkpoint()


def judge(
    journals: dict[ConversationKey, list[JournalRecord]], before: dict[ConversationKey, list[JournalRecord]]
) -> None:
    """One sub-agent was lost as it stood, the next one answered, and everything was counted once."""
    own = journals[KEY]
    lost, again = ended(own)
    assert [each.child for each in begun(own)] == [lost.child, again.child]
    assert (lost.code, lost.rounds, lost.usage) == ("lost", 1, Usage(input_tokens=2))
    assert (again.code, again.rounds, again.usage) == ("", 2, Usage(input_tokens=4))
    assert [json.loads(said(result)) for result in results_of(own)] == [{"answer": "it is there"}]
    assert isinstance(own[-1], TurnFinished)
    old = [key for key in journals if key.path.startswith(KEY.child(lost.child).path)]
    assert {key: journals[key] for key in old} == {key: before[key] for key in before if key != KEY}
    (answered,) = ended(journals[KEY.child(again.child)])
    bundles = [each.bundle for records in journals.values() for each in ended(records) if each.bundle]
    assert bundles == [answered.bundle]


@pytest.mark.parametrize(
    "options", [pytest.param(NO_SWEEP, id="by its next write"), pytest.param(QUICK, id="by a look at its leases")]
)
async def test_who_is_replaced_ends_all_three_levels_and_writes_nothing_while_the_spawn_runs_again_elsewhere(
    options: SupervisorOptions,
) -> None:
    gate, open_gate = Gate(), Gate()
    open_gate.opened.set()
    mine, theirs = Family(asks("scout"), gate=gate), Family(says("done"), gate=open_gate)
    later = ManualClock()
    later.advance(QUICK.lease_ttl_s + 1)
    async with running_engine(**mine.parts(options=options)) as engine:
        await engine.send("look")
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        before = await journals_of(engine)
        assert len(before) == 3
        asked = mine.asked()
        parts = theirs.parts(data=engine.store.data, clock=later, holder="s_2", ids=later_ids())
        async with running_engine(**parts) as other:
            await other.rested()
            after = await journals_of(other)
            judge(after, before)
            if options is NO_SWEEP:
                assert engine.supervisor.live_status(KEY) is not None
                gate.opened.set()
            await left(engine)
            assert await journals_of(other) == after
        assert mine.asked() == asked
        assert engine.parts.places.statistics().taken == 0
        assert await engine.blobs.stored(KEY) == (), "it left no bundle"
