"""An interpreter over what all actors of a process share, for a conversation or for a sub-agent."""

from collections.abc import Callable

import anyio.abc

from torpor.actor.commit import Journal
from torpor.actor.parts import ActorParts
from torpor.conversation.steps import StepOptions
from torpor.records.ids import ConversationKey
from torpor.toolhost.contract import FindingSink
from torpor.turn.agents import Agent
from torpor.turn.contract import Observer, Spawns
from torpor.turn.interpret import Interpreter
from torpor.turn.tool_batch import Strays


def interpreter_of(
    key: ConversationKey,
    parts: ActorParts,
    *,
    journal: Journal,
    agent: Agent | None,
    steps: StepOptions,
    tasks: anyio.abc.TaskGroup,
    strays: Strays,
    land_soon: Callable[[], None],
    spawns: Spawns,
    observer: Observer,
    recovers: bool = False,
    collector: FindingSink | None = None,
) -> Interpreter:
    """Args: as the ``Interpreter`` has them; it gets the rest from ``parts``."""
    return Interpreter(
        key,
        journal=journal,
        pages=parts.store,
        agent=agent,
        bus=parts.bus,
        clock=parts.clock,
        places=parts.places.of(key),
        steps=steps,
        retry=parts.retry,
        options=parts.turn,
        compaction=parts.compaction,
        calibration=parts.calibration,
        surroundings=parts.surroundings,
        tasks=tasks,
        strays=strays,
        land_soon=land_soon,
        recovers=recovers,
        spawns=spawns,
        collector=collector,
        observer=observer,
    )
