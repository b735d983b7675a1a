"""Row X1: what it costs to assemble a request of a long conversation, beside copying its bytes once.

``python -m bench.context [--json]``. A conversation of 500 turns, an agent with 100 tools and 200 skills. Assembly is
everything between the decision to ask and the SDK's call: the offer for the flags and skills of the moment, the view,
the tokens by section, the bytes of the body with their cache marks. The floor copies the same bytes.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from bench.command import run
from bench.measure import Figures, probe
from bench.report import Row
from bench.work import TURN, InstantModel, Script, message, prose
from torpor.conversation.budget import exceeded, next_request_tokens, request_sections
from torpor.conversation.fold import fold
from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState
from torpor.conversation.turn_folds import requested_view
from torpor.flags.contract import EVERYTHING_ON
from torpor.model.anthropic_wire import WireRequests
from torpor.records.blocks import text_block, tool_result_block
from torpor.records.ids import MessageId
from torpor.records.journal import (
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    PreambleChanged,
    ToolFinished,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import Effect, Outcome, Usage
from torpor.skillbook.load import SkillRoot
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.reload import SkillBook
from torpor.toolhost.contract import ToolContext, ToolResult, ToolSpec
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition

TURNS: Final = 500
TOOLS: Final = 100
SKILLS: Final = 200
ROUNDS: Final = 1_000
"""Assemblies that are timed in one process; the median counts."""
PROCESSES: Final = 9
MODULE: Final = "bench.context"
_SKILL: Final = "---\nname: {name}\ndescription: {description}\n---\n{body}\n"


class ManyTools:
    """Implements ``toolhost.contract.Toolbox``; nobody calls them."""

    def __init__(self) -> None:
        self._specs = tuple(
            ToolSpec(
                name=f"tool_{number:03d}",
                description=prose(300),
                input_schema={"type": "object", "properties": {"name": {"type": "string", "description": prose(60)}}},
                effect=Effect.READ,
                deadline_s=30.0,
            )
            for number in range(TOOLS)
        )

    def specs(self) -> tuple[ToolSpec, ...]:
        return self._specs

    def spec(self, name: str) -> ToolSpec | None:
        return next((spec for spec in self._specs if spec.name == name), None)

    async def call(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult:
        raise AssertionError(name)

    async def probe(self, name: str, arguments: msgspec.Raw, context: ToolContext) -> ToolResult | None:
        raise AssertionError(name)


def skills_in(folder: Path) -> SkillBook:
    """200 skills with descriptions of ordinary length."""
    for number in range(SKILLS):
        skill = folder / f"skill-{number:03d}"
        skill.mkdir()
        text = _SKILL.format(name=skill.name, description=prose(200), body=prose(4_000))
        (skill / "SKILL.md").write_text(text)
    book = SkillBook([SkillRoot(path=folder, scope="home")], options=SkillOptions(index_budget_tokens=100_000))
    book.load()
    return book


class Conversation:
    """Records added and folded as an actor does, without one."""

    def __init__(self, agent: Agent, skills: SkillBook) -> None:
        self.state = ConversationState()
        self._script = Script(TURN)
        preamble = agent.offer(EVERYTHING_ON, skills.current).preamble
        self.add(ConversationCreated(agent=agent.name), PreambleChanged(digest=preamble.digest, body=preamble.body))

    def add(self, *drafts: JournalRecord) -> None:
        self.state = fold(self.state, numbered(self.state, drafts, at_us=0))

    def take_turn(self, number: int) -> None:
        """A whole one of the usual work."""
        self.begin(number)
        for round_ in (1, 2):
            self._ask(number, round_)
            answer = self._script.answer(turn=number, round_=round_)
            call, reason = f"{number}-{round_}-1", answer.stop_reason
            usage = Usage(input_tokens=900, output_tokens=250)
            self.add(
                ModelReplied(
                    turn=number, call=call, round=round_, blocks=answer.blocks, stop_reason=reason, usage=usage
                )
            )
            assert self.state.turn is not None
            self.add(
                *(
                    ToolFinished(
                        turn=number,
                        call_id=each.id,
                        name=each.name,
                        outcome=Outcome.SUCCEEDED,
                        block=tool_result_block(each.id, prose(TURN.result_chars), is_error=False),
                    )
                    for each in self.state.turn.calls
                )
            )
        self.add(TurnFinished(turn=number))

    def begin(self, number: int) -> None:
        """A message, and the turn that answers it."""
        id_ = MessageId(f"m_{number}")
        blocks = (text_block(message("x", number, TURN)),)
        self.add(
            MessageReceived(message_id=id_, principal="ann", blocks=blocks), TurnPrepared(turn=number, messages=(id_,))
        )

    def _ask(self, number: int, round_: int) -> None:
        view, digest = requested_view(self.state, ()), self.state.preamble.digest
        call = f"{number}-{round_}-1"
        self.add(
            ModelRequested(turn=number, call=call, round=round_, preamble=digest, link=view.link.hex(), sections={})
        )


def median_us(work: Callable[[], object]) -> float:
    """CPU of one call, after a few that are not timed."""
    taken = []
    for each in range(ROUNDS + 5):
        started = time.process_time_ns()
        work()
        if each >= 5:
            taken.append((time.process_time_ns() - started) / 1_000)
    return statistics.median(taken)


async def assembly() -> Figures:
    """In this process: nothing here waits for anything."""
    with TemporaryDirectory(prefix="torpor-bench-") as folder:
        skills = skills_in(Path(folder))
    definition = AgentDefinition(name="clerk", system=prose(4_000), model={"kind": "played"})
    agent = Agent(definition, model=InstantModel(TURN), toolbox=ManyTools(), index_budget_tokens=100_000)
    conversation = Conversation(agent, skills)
    for number in range(1, TURNS + 1):
        conversation.take_turn(number)
    conversation.begin(TURNS + 1)
    state, wire = conversation.state, WireRequests(cache_ttl="5m")

    def assemble() -> bytes:
        offer = agent.offer(EVERYTHING_ON, skills.current)
        view = requested_view(state, ())
        sections = request_sections(offer.sections, state.turn, view, budget_tokens=agent.budget_tokens)
        exceeded(sections, agent.profile)
        next_request_tokens(state, view.size_bytes, bytes_per_token=4.0)
        return wire.body(state.preamble, view)

    body = assemble()
    return {"bytes": len(body), "floor": median_us(lambda: bytearray(body)), "torpor": median_us(assemble)}


def rows() -> Iterator[Row]:
    """The median of several processes: where in the caches source and copy come to lie differs between them."""
    runs = sorted((probe(MODULE, "assembly") for _ in range(PROCESSES)), key=lambda run: run["torpor"] / run["floor"])
    found = runs[PROCESSES // 2]
    what = f"assemble a request of {found['bytes'] / 1e6:.2f} MB: {TURNS} turns, {TOOLS} tools, {SKILLS} skills"
    yield Row(id="X1", what=what, unit="us", torpor=found["torpor"], floor=found["floor"], ratio_at_most=1.5)


if __name__ == "__main__":
    sys.exit(run(MODULE, rows=rows, probes={"assembly": assembly}))
