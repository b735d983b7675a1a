"""The real engine of a life: one agent over the life's ports, its actors, and the runner of its jobs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.simulation.asides import COMPACTION, live_model_of, summariser_of
from tests.simulation.faults import Fault
from tests.simulation.files import AT_ONCE, attached_of
from tests.simulation.jobs import live_options_of, runner_of, serve_live_contexts
from tests.simulation.life import FALLBACK, MODEL, Engine, Life
from tests.simulation.media import Medium
from tests.simulation.model import DEADLINE_S, SimModel
from tests.simulation.offers import Switches, surroundings_of
from tests.simulation.ports import SimBus, SimClock, SimIds
from tests.simulation.subagents import SPAWNING, StepWatch, spawning_tools, subagents_of
from tests.simulation.tools import TOOLS, Ledger, SimBlobs, toolbox_of
from tests.simulation.wholes import CUT_WITHIN_S, wholes_of
from tests.support.oracle_evidence import LiveRules, Window
from torpor.actor.options import ActorOptions
from torpor.actor.parts import ActorParts
from torpor.bus.local import LocalBus
from torpor.conversation.budget import Profile, tokens_of_bytes
from torpor.conversation.retry import RetryOptions
from torpor.conversation.steps import StepOptions
from torpor.flags.contract import EVERYTHING_ON
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.registry import Supervisor
from torpor.turn.agents import UNBOUND, Agent, Agents
from torpor.turn.contract import UNOBSERVED
from torpor.turn.definition import AgentDefinition
from torpor.turn.options import TurnOptions
from torpor.turn.places import FairPlaces

_MODEL: Final = {"kind": MODEL, "fallback": FALLBACK}
_HEADROOM: Final = 0.1
"""Of a small budget."""


@asynccontextmanager
async def open_engine(life: Life, *, medium: Medium, ledger: Ledger, switches: Switches) -> AsyncIterator[Engine]:
    """Implements ``life.OpenEngine``."""
    plan = life.world.plan
    async with medium.open(life) as store:
        bus = SimBus(LocalBus(), life)
        agent = _agent(life, medium=medium, ledger=ledger, switches=switches)
        clock = SimClock(life)
        places = FairPlaces(2, monotonic_s=clock.monotonic_s)
        runner = runner_of(life, medium.job_store)
        subagents = subagents_of(life, ledger=ledger, holders=medium.holder)
        parts = ActorParts(
            store=store,  # type: ignore[arg-type]  # stands for one, method by method
            bus=bus,
            clock=clock,
            ids=SimIds(life.world.rng.getrandbits(32)),
            agents=Agents((agent,)),
            places=places,
            steps=StepOptions(step_limit=plan.step_limit),
            calibration=life.calibration,
            retry=RetryOptions(retries_max=plan.retries_max, base_s=0.2, pause_max_s=2.0),
            surroundings=surroundings_of(life, switches, attached=attached_of(life, ledger)),
            turn=TurnOptions(model_deadline_s=DEADLINE_S, cancel_grace_s=plan.cancel_grace_s),
            compaction=COMPACTION,
            actor=ActorOptions(
                mailbox_capacity=plan.mailbox_capacity,
                unprocessed_max=plan.unprocessed_max,
                snapshot_min_bytes=plan.snapshot_min_bytes,
                snapshot_share=plan.snapshot_share,
            ),
            jobs_added=runner.wake,
            spawns=subagents.of if subagents is not None else None,
            observer=StepWatch() if subagents is not None else UNOBSERVED,
        )
        options = SupervisorOptions(
            idle_timeout_s=plan.idle_timeout_s,
            pack_after_s=plan.idle_timeout_s / 2,
            sweep_s=plan.sweep_s,
            due_batch=plan.due_batch,
            lease_ttl_s=plan.lease_ttl_s,
            stop_deadline_s=plan.stop_deadline_s,
            crashes_max=1_000,
            live_max=plan.live_max,
            thaws_max=plan.thaws_max,
            busy_retry_after_max_s=2.0,
            cut_deadline_s=CUT_WITHIN_S,
        )
        supervisor = Supervisor(
            parts,
            holder=life.holder,
            options=options,
            chance=life.world.rng.random,
            on_gone=ledger.kept[life.name].let_go,
        )
        assert agent.live is not None
        serve_live_contexts(
            runner,
            model=agent.live,
            store=store,
            supervisor=supervisor,
            places=places,
            options=live_options_of(life),
        )
        wholes = wholes_of(life, supervisor=supervisor, parts=parts, store=store, bus=bus, ledger=ledger)
        yield Engine(
            supervisor,
            directory=wholes.directory,
            forks=wholes.forks,
            runner=runner,
            store=store,
            bus=bus,
            keep_blobs=SimBlobs(ledger, life).keep,
        )


_FIXED_TOKENS: Final[dict[tuple[int, bool], int]] = {}
"""Of an agent with all tools and skills, by the budget of its index and whether it has sub-agents; the same in every
run."""


def _agent(life: Life, *, medium: Medium, ledger: Ledger, switches: Switches) -> Agent:
    """The one agent; a home that changed has another prompt, and one tool less."""
    world, plan = life.world, life.world.plan
    has_changed, spawning = world.roll(Fault.HOME_CHANGED), SPAWNING if plan.has_subagents else ()

    def made(profile: Profile, *, system: str = "You are a clerk.", without: str = "") -> Agent:
        definition = AgentDefinition(
            name="clerk",
            system=system,
            model=_MODEL,
            default=True,
            skill_tools="restriction" if plan.is_restricted else "advice",
            policies=("*",),
        )
        return Agent(
            definition,
            model=SimModel(life, holders=medium.holder, stir=switches.stir, spawning=spawning),
            toolbox=toolbox_of(
                life, ledger, tools=[tool for tool in TOOLS if tool.name != without], more=spawning_tools(life)
            ),
            index_budget_tokens=plan.index_budget_tokens,
            profile=profile,
            summariser=summariser_of(life),
            live=live_model_of(life),
        )

    kind = plan.index_budget_tokens, plan.has_subagents
    if kind not in _FIXED_TOKENS:
        fullest = made(UNBOUND).offer(EVERYTHING_ON, switches.fullest, has_earlier=True)
        _FIXED_TOKENS[kind] = tokens_of_bytes(fullest.preamble.size_bytes)
    profile = _profile(life, _FIXED_TOKENS[kind])
    if not has_changed:
        return made(profile)
    return made(profile, system=f"You are a clerk, as of {life.name}.", without=world.rng.choice(("file", "look")))


def _profile(life: Life, fixed_tokens: int) -> Profile:
    """One that has a little room beside the fixed parts, and what the oracle is told of it."""
    plan, evidence = life.world.plan, life.world.evidence
    live = live_options_of(life)
    evidence.files_max = AT_ONCE
    evidence.live = LiveRules(
        first_messages=live.first_messages,
        every_messages=live.every_messages,
        retry_messages=live.retry_messages,
        read_messages=live.read_messages,
        words_max=live.words_max,
    )
    if not plan.room_tokens:
        return Profile(exchanges_max=plan.exchanges_max)
    threshold_tokens = fixed_tokens + plan.room_tokens
    budget_tokens = round(threshold_tokens / COMPACTION.threshold_share)
    headroom_tokens = round(budget_tokens * _HEADROOM)
    evidence.window = Window(
        threshold_tokens=threshold_tokens,
        limit_tokens=budget_tokens - headroom_tokens,
        free_tokens=budget_tokens - headroom_tokens - fixed_tokens,
        has_summariser=plan.has_summariser,
        failures_max=COMPACTION.failures_max,
    )
    return Profile(budget_tokens=budget_tokens, headroom_tokens=headroom_tokens, exchanges_max=plan.exchanges_max)
