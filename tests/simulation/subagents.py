"""The sub-agents of a life: three that have one another work, over the life's ports.

``scout`` and ``sift`` owe a text, ``dig`` owes research; their tools only read. What they find and select past the
model is in the ledger as well, so that it can be told what may be told.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any, Final

from tests.simulation.faults import Fault
from tests.simulation.life import Life
from tests.simulation.model import SimModel
from tests.simulation.tools import DEADLINE_S, Act, Ledger, SimBlobs, look, toolbox_of
from tests.support.oracle_evidence import ChildRules, Json
from torpor.conversation.steps import Step
from torpor.errors import ToolRefused
from torpor.records.ids import ConversationKey
from torpor.subagents.definition import Subagent, SubagentDefinition
from torpor.subagents.options import SubagentOptions
from torpor.subagents.research import RESEARCH, Research
from torpor.subagents.text import TEXT, Text
from torpor.supervisor.spawn import Subagents
from torpor.toolhost.contract import Finding, FindingSink, ToolContext
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.subagent_tools import subagent_tool
from torpor.turn.agents import Agent
from torpor.turn.contract import Unobserved
from torpor.turn.definition import AgentDefinition

SPAWNING: Final = ("scout", "dig")
"""That an agent has work."""
_BELOW: Final = {"scout": ("dig",), "dig": ("sift",), "sift": ()}
_OWED: Final = {"scout": TEXT, "dig": RESEARCH, "sift": TEXT}
_FOUND: Final = tuple(f"s{number}" for number in range(12))
"""Ids of all that there is to be found."""
_UNKNOWN: Final = ("x1", "x2")
"""Ids of what nothing finds."""
_MOOD: Final = re.compile(r"errand \d+, (\w+)")
_TOOLS: Final = ("seek", "seek", "pick", "look")
_FINDABLE: Final = re.compile(r"\bs\d+\b")
_MODEL: Final = {"kind": "small"}
_WORKING: Final = ContextVar[ConversationKey]("working")
"""The conversation in whose step the task is."""


class StepWatch(Unobserved):
    """Tells models whose step they are asked in."""

    def step(self, key: ConversationKey, step: Step, *, agent: str) -> AbstractContextManager[None]:
        return _in_step(key)


@contextmanager
def _in_step(key: ConversationKey) -> Iterator[None]:
    token = _WORKING.set(key)
    try:
        yield
    finally:
        _WORKING.reset(token)


class ChildModel(SimModel):
    """That of the sub-agents of one name; goes about each task in the mood that the task names."""

    def __init__(self, life: Life, name: str, *, holders: Callable[[ConversationKey], tuple[str, int]]) -> None:
        super().__init__(life, holders=holders, stir=lambda: None, spawning=_BELOW[name] * 2, tools=_TOOLS)
        self._owes = _OWED[name]

    def _conversation(self, body: bytes) -> str:
        return _WORKING.get().conversation

    def _blocks(self, messages: list[Json]) -> list[Json]:
        world = self._life.world
        rng = world.rng
        if world.roll(Fault.MODEL_EMPTY):
            return []
        said = json.dumps(messages)
        found = _MOOD.search(said)
        mood = found[1] if found else "plain"
        if mood == "endless" or rng.random() < 0.5:
            said_first = [_text(self._words())] if rng.random() < 0.4 else []
            return [*said_first, *(self._call() for _ in range(rng.choice((1, 1, 2))))]
        is_wrong = mood == "stubborn" or rng.random() < 0.1
        if self._owes == TEXT:
            return [_text(" \n" if is_wrong else self._words())]
        ids = [*rng.choices(sorted(set(_FINDABLE.findall(said)) | {_UNKNOWN[0]}), k=rng.randint(0, 10))]
        ids += _UNKNOWN[: rng.randint(0, 2)]
        answer = {"source_ids": ids, "planner_reflection": self._words()}
        return [_text("later" if is_wrong else json.dumps(answer))]

    def _call(self) -> Json:
        use, rng = super()._call(), self._life.world.rng
        if use["name"] in {"seek", "pick"} and isinstance(use["input"], dict) and "what" in use["input"]:
            pool = _FOUND if use["name"] == "seek" else (*_FOUND, *_UNKNOWN)
            use["input"] = {"ids": rng.choices(pool, k=rng.randint(1, 5))}
        return use

    def _words(self) -> str:
        counts = self._life.world.counts
        counts["child answers"] += 1
        return f"answer {counts['child answers']}"


@tool(effect="read", deadline_s=DEADLINE_S)
async def seek(ids: tuple[str, ...], context: ToolContext) -> str:
    """Find something."""
    act = Act("seek", context)
    said = await act.perform(writes=False)
    for id_ in ids:
        act.note("finding", id_)
        await _sink(context).found(Finding(id=id_, title=f"On {id_}", locator=id_, excerpt=f"It is {id_}."))
        act.note("found", id_)
    return f"{said}: {' '.join(ids)}"


@tool(effect="read", deadline_s=DEADLINE_S)
async def pick(ids: tuple[str, ...], context: ToolContext) -> str:
    """Select what was found."""
    act = Act("pick", context)
    said = await act.perform(writes=False)
    act.note("selecting", " ".join(ids))
    chosen = await _sink(context).select(ids)
    return f"{said}: {len(chosen.counted)} are selected, {len(chosen.unknown)} unknown"


def _sink(context: ToolContext) -> FindingSink:
    if context.collector is None:
        raise ToolRefused("nothing is collected here")
    return context.collector


def spawning_tools(life: Life, names: tuple[str, ...] = SPAWNING) -> tuple[Tool[..., Any], ...]:
    """By which an agent has these work; none in a life without sub-agents."""
    plan = life.world.plan
    return tuple(
        subagent_tool(name, description=f"Has {name} work.", seconds=plan.child_seconds_max)
        for name in (names if plan.has_subagents else ())
    )


def subagents_of(
    life: Life, *, ledger: Ledger, holders: Callable[[ConversationKey], tuple[str, int]]
) -> Subagents | None:
    """For one life, and what the oracle is told of them."""
    plan = life.world.plan
    if not plan.has_subagents:
        return None
    options = SubagentOptions(
        depth_max=plan.children_deep, at_once_max=plan.children_at_once, turn_tokens_max=plan.children_tokens_max
    )
    life.world.evidence.children = ChildRules(
        steps_max=plan.child_steps_max,
        tokens_max=plan.child_tokens_max,
        turn_tokens_max=options.turn_tokens_max,
        depth_max=options.depth_max,
        selected_max=options.selected_max,
        results=_OWED,
    )
    made = {name: _subagent(name, life, ledger=ledger, holders=holders) for name in _OWED}
    return Subagents(made, blobs=SimBlobs(ledger, life), options=options)


def _subagent(
    name: str, life: Life, *, ledger: Ledger, holders: Callable[[ConversationKey], tuple[str, int]]
) -> Subagent:
    plan, result = life.world.plan, Research() if _OWED[name] == RESEARCH else Text()
    system = f"You are {name}."
    definition = SubagentDefinition(
        name=name,
        description=f"Has {name} work.",
        system=system,
        subagents=_BELOW[name],
        result=_OWED[name],
        steps_max=plan.child_steps_max,
        tokens_max=plan.child_tokens_max,
        seconds_max=plan.child_seconds_max,
    )
    agent = Agent(
        AgentDefinition(name=name, system=system, model=_MODEL),
        model=ChildModel(life, name, holders=holders),
        toolbox=toolbox_of(life, ledger, tools=(look, seek, pick), more=spawning_tools(life, _BELOW[name])),
    )
    return Subagent(definition=definition, agent=agent, result=result)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
