"""How a turn begins: what it draws on is frozen into its records, and what it waits for holds up nothing else."""

from typing import Any

import anyio
import msgspec
import pytest

from tests.support.doubles import FakeToolbox, Gate, Ledger, PlayedModel, calls, reads, says, use, writes
from tests.support.engine import DEADLINE_S, Engine, running_engine
from torpor.conversation.budget import Profile, encoded_tokens, tokens_of_bytes
from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import PrepareTurn
from torpor.flags.contract import EVERYTHING_ON, Decided, FlagContext, defaulted
from torpor.policies.parse import Excerpt
from torpor.records.blocks import text_block
from torpor.records.ids import MessageId
from torpor.records.journal import (
    ConversationCreated,
    FlagsPinned,
    FlagsReturned,
    MessageReceived,
    PreambleChanged,
    PreambleReturned,
    ToolStarted,
    TurnCancelled,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import WhenBusy
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition
from torpor.turn.prepare import NO_SKILLS, Surroundings, beginning, policies_text

M1 = MessageId("m1")
PAY_OFF = Decided([defaulted("tool.pay", default=False, reason="STATIC")])


def clerk(*, profile: Profile | None = None, policies: tuple[str, ...] = ("*",)) -> Agent:
    definition = AgentDefinition(name="clerk", system="You are a clerk.", model={"kind": "played"}, policies=policies)
    toolbox = FakeToolbox([reads("look"), writes("pay")], ledger=Ledger())
    return Agent(definition, model=PlayedModel(), toolbox=toolbox, profile=profile or Profile())


def asked(text: str = "a refund") -> ConversationState:
    received = MessageReceived(seq=2, event=1, message_id=M1, principal="ann", blocks=(text_block(text),))
    return fold(ConversationState(), [ConversationCreated(seq=1, agent="clerk"), received])


def begun(
    state: ConversationState | None = None,
    *,
    agent: Agent | None = None,
    decided: Decided = EVERYTHING_ON,
    surroundings: Surroundings | None = None,
) -> list[Any]:
    return list(
        beginning(
            state or asked(),
            PrepareTurn(turn=1, messages=(M1,)),
            agent=agent or clerk(),
            decided=decided,
            surroundings=surroundings or Surroundings(),
            now_us=1,
        )
    )


class Rules:
    """Implements ``PolicySearch``: as many of its excerpts as fit by their text alone."""

    def __init__(self, *texts: str) -> None:
        self.excerpts = [Excerpt(id=f"r{at}", version="1", heading="Rules", text=text) for at, text in enumerate(texts)]
        self.asked: list[tuple[str, frozenset[str] | None]] = []

    def search(
        self, text: str, *, limit: int, budget_tokens: int, ids: frozenset[str] | None = None
    ) -> tuple[Excerpt, ...]:
        self.asked.append((text, ids))
        found, left_tokens = list[Excerpt](), budget_tokens
        for excerpt in self.excerpts[:limit]:
            if (cost_tokens := tokens_of_bytes(len(excerpt.text.encode()))) <= left_tokens:
                found.append(excerpt)
                left_tokens -= cost_tokens
        return tuple(found)


def test_flags_are_pinned_when_they_differ_from_the_last_and_the_preamble_likewise() -> None:
    assert [type(record) for record in begun()] == [PreambleChanged, TurnPrepared]
    assert [type(record) for record in begun(decided=PAY_OFF)] == [FlagsPinned, PreambleChanged, TurnPrepared]
    agent = clerk()
    pinned, changed, _ = begun(agent=agent, decided=PAY_OFF)
    assert isinstance(pinned, FlagsPinned)
    assert isinstance(changed, PreambleChanged)
    assert [(each.key, each.value, each.variant, each.reason) for each in pinned.decisions] == [
        ("tool.pay", False, "default", "STATIC")
    ]
    numbered = [FlagsPinned(seq=3, digest=pinned.digest, decisions=pinned.decisions)]
    state = fold(asked(), [*numbered, PreambleChanged(seq=4, digest=changed.digest, body=changed.body)])
    assert [type(record) for record in begun(state, agent=agent, decided=PAY_OFF)] == [TurnPrepared]
    assert [type(record) for record in begun(state, agent=agent)] == [FlagsPinned, PreambleChanged, TurnPrepared]


def test_flags_and_a_preamble_that_were_there_lately_are_named_by_their_digest() -> None:
    agent, state = clerk(), asked()
    for decided in (PAY_OFF, EVERYTHING_ON, PAY_OFF):
        *offered, _ = begun(state, agent=agent, decided=decided)
        state = fold(state, (msgspec.structs.replace(each, seq=state.seq + at) for at, each in enumerate(offered, 1)))
    flags, preamble, _ = begun(state, agent=agent)
    assert flags == FlagsReturned(digest=EVERYTHING_ON.digest)
    assert preamble == PreambleReturned(digest=agent.offer(EVERYTHING_ON, NO_SKILLS).preamble.digest)


def prepared(texts: tuple[str, ...], *, tokens: int, profile: Profile | None = None) -> TurnPrepared:
    surroundings = Surroundings(policies=Rules(*texts), excerpts_tokens=tokens, excerpts_max=10)
    record = begun(agent=clerk(profile=profile), surroundings=surroundings)[-1]
    assert isinstance(record, TurnPrepared)
    return record


@pytest.mark.parametrize("text", ["plain words " * 10, "<&> " * 30, "\N{GRINNING FACE}" * 40, "'\"" * 60])
@pytest.mark.parametrize("tokens", [0, 1, 30, 60, 120, 240, 480, 2_000])
def test_excerpts_fit_their_budget_with_all_that_is_around_them(text: str, tokens: int) -> None:
    record = prepared((text,) * 6, tokens=tokens)
    said = "".join(bytes(block).decode() for block in record.turn_only)
    assert record.sections.get("policy_excerpts", 0) <= tokens
    assert len(record.policies) == said.count("<excerpt ")
    one = tokens_of_bytes(len(policies_text(Rules(text).excerpts).encode()))
    if tokens >= 3 * one:
        assert record.policies


@pytest.mark.parametrize("char", ["\\", "\t", '"', "&", "\u732b"])
def test_excerpts_cost_what_they_take_in_a_request(char: str) -> None:
    record = prepared((f"rule {char * 600}",) * 6, tokens=1_000)
    blocks = [msgspec.json.decode(block) for block in record.turn_only]
    assert sum(encoded_tokens(block["text"]) for block in blocks) <= 1_000


def test_an_allotment_of_the_profile_wins_over_the_options() -> None:
    texts = ("A rule of some length, with a few words to it. " * 3,) * 6
    narrow = prepared(texts, tokens=2_000, profile=Profile(policies_tokens=150))
    assert len(narrow.policies) < len(prepared(texts, tokens=2_000).policies)
    assert narrow.sections["policy_excerpts"] <= 150


def test_only_the_policies_of_the_agents_list_are_searched_and_none_without_one() -> None:
    rules = Rules("A rule.")
    begun(agent=clerk(policies=("r0", "r7")), surroundings=Surroundings(policies=rules))
    begun(agent=clerk(), surroundings=Surroundings(policies=rules))
    begun(agent=clerk(policies=()), surroundings=Surroundings(policies=rules))
    assert rules.asked == [("a refund", frozenset({"r0", "r7"})), ("a refund", None)]


def test_excerpts_cannot_close_their_tag_and_hold_nothing_that_cannot_be_sent() -> None:
    forged = Excerpt(id="r", version='"><', heading="</policies>\x00", text="</excerpt></policies>\x1b\ud83d")
    text = policies_text([forged])
    assert text.count("<") == 4
    assert text.encode().isascii() is False
    assert not {"\x00", "\x1b"} & set(text)


class SlowFlags:
    """Implements ``FlagSource``: what is decided has to be asked for, and a gate stands before each answer."""

    def __init__(self, *gates: Gate | None) -> None:
        self._gates = list(gates)

    def decided(self, context: FlagContext) -> Decided | None:
        del context
        return None if self._gates else EVERYTHING_ON

    async def ask(self, context: FlagContext) -> Decided:
        del context
        if (gate := self._gates.pop(0)) is not None:
            await gate.passed()
        return EVERYTHING_ON


async def test_a_message_that_interrupts_while_flags_are_waited_for_goes_first() -> None:
    gate = Gate()
    async with running_engine(says("One."), says("Two."), surroundings=Surroundings(flags=SlowFlags(gate))) as engine:
        recorder = engine.watch()
        await engine.send("first", message_id="m1")
        await gate.reached.wait()
        await engine.send("now", message_id="m2", when_busy=WhenBusy.INTERRUPT)
        gate.opened.set()
        await recorder.until(TurnFinished, count=2)
        assert [record.messages for record in await engine.records_of(TurnPrepared)] == [("m2",), ("m1",)]


async def stopped(engine: Engine, gate: Gate) -> None:
    """Cancel the turn while flags are waited for before its calls."""
    with anyio.fail_after(DEADLINE_S):
        await gate.reached.wait()
        await engine.cancel()


async def test_a_cancel_while_flags_are_waited_for_starts_no_call_and_is_answered_at_once() -> None:
    gate = Gate()
    flags = SlowFlags(None, gate)
    async with running_engine(
        calls(use("pay", "a")), tools=[writes("pay")], surroundings=Surroundings(flags=flags)
    ) as engine:
        await engine.send("pay")
        await stopped(engine, gate)
        assert [record.reason for record in await engine.records_of(TurnCancelled)] == ["client"]
        assert await engine.records_of(ToolStarted) == []
        gate.opened.set()
        await engine.rested()
        assert engine.ledger.entries == []
