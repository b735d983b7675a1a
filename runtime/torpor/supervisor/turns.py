"""What live actors are doing, as operators see it: the turns that run, and the step of each that is under way.

Above: the registry, which has the actors. Nothing is kept for it: all of it is read from what the actors hold anyway.
"""

from collections.abc import Iterable
from typing import Final

from torpor.actor.loop import Actor
from torpor.conversation.state import TurnState
from torpor.conversation.steps import CallModel, Compact, FinishTurn, PrepareTurn, Rest, RunTools, Step
from torpor.supervisor.contract import RunningTurn
from torpor.turn.agents import Agent, Agents

NAMES: Final[dict[type[Step], str]] = {
    PrepareTurn: "prepare_turn",
    Compact: "compact",
    CallModel: "call_model",
    RunTools: "run_tools",
    FinishTurn: "finish_turn",
}
PAUSE: Final = "pause"


def running_turns(actors: Iterable[Actor], *, agents: Agents) -> tuple[RunningTurn, ...]:
    """The oldest first."""
    found = [turn for actor in actors if (turn := _turn_of(actor, agents)) is not None]
    return tuple(sorted(found, key=lambda turn: (turn.began_us, turn.key)))


def _turn_of(actor: Actor, agents: Agents) -> RunningTurn | None:
    if actor.journal is None or (doing := actor.doing) is None or isinstance(doing.step, Rest):
        return None
    state = actor.journal.state
    turn = state.turn
    return RunningTurn(
        key=actor.key,
        agent=state.agent,
        turn=doing.step.turn,
        began_us=turn.began_us if turn is not None else doing.began_us,
        step=NAMES[type(doing.step)] if turn is None or not _is_pause(doing.step, turn) else PAUSE,
        of=_of(doing.step, turn, agents.get(state.agent)) if turn is not None else (),
        step_began_us=doing.began_us,
        waiting=len(state.queued),
    )


def _is_pause(step: Step, turn: TurnState) -> bool:
    """Whether the model is to be asked again, and has not been yet."""
    return isinstance(step, CallModel) and bool(step.not_before_us) and bool(turn.retry_at_us)


def _of(step: Step, turn: TurnState, agent: Agent | None) -> tuple[str, ...]:
    if isinstance(step, CallModel):
        name = turn.model or (agent.model_name if agent is not None else "")
        return (name,) if name else ()
    if isinstance(step, RunTools):
        return tuple(sorted({call.name for call in turn.open_calls}))
    return ()
