"""What a turn is told beside the user's words never makes it fail: it is cut to what is free."""

from collections.abc import Sequence

import msgspec
import pytest

from tests.support.doubles import FakeToolbox, Ledger, PlayedModel, reads
from torpor.conversation.budget import Profile, next_request_tokens, pending_bytes
from torpor.conversation.earlier import READ_EARLIER
from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Folding, PrepareTurn, StepOptions
from torpor.flags.contract import EVERYTHING_ON
from torpor.policies.parse import Excerpt
from torpor.records.blocks import text_block
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.ids import MessageId
from torpor.records.journal import ConversationCreated, JournalRecord, MessageReceived, TurnPrepared
from torpor.turn.agents import Agent
from torpor.turn.definition import AgentDefinition
from torpor.turn.foresight import Foreseen, foreseen
from torpor.turn.prepare import NO_SKILLS, Surroundings, beginning
from torpor.turn.sparing import Spared, sparing

M1 = MessageId("m1")
LIMIT = 2_000
CONTEXT = WorkingContext(
    record=SelectedRecord(type="visit", id="v7", text="r" * 80),
    screen=ContextPart(text="s" * 120),
    plan=ContextPart(text="p" * 320),
)


class Rules:
    """Implements ``PolicySearch``: whole excerpts of 100 tokens, as many as fit."""

    searches = 0

    def search(
        self, text: str, *, limit: int, budget_tokens: int, ids: frozenset[str] | None = None
    ) -> tuple[Excerpt, ...]:
        del text, ids
        self.searches += 1
        count = min(limit, budget_tokens // 100)
        return tuple(Excerpt(id=f"r{at}", version="1", heading="Rules", text="x" * 400) for at in range(count))


class Begun:
    """A turn that was begun, and what comes of it."""

    def __init__(self, text_bytes: int, *, found_tokens: int = 0, **fields: object) -> None:
        """Args: text_bytes: of the message.  found_tokens: that a summariser may add.  fields: of the state before."""
        self.rules = Rules()
        self.found_tokens = found_tokens
        definition = AgentDefinition(name="clerk", system="You.", model={"kind": "played"}, policies=("*",))
        toolbox = FakeToolbox([reads("look"), reads(READ_EARLIER)], ledger=Ledger())
        profile = Profile(budget_tokens=LIMIT + 500, headroom_tokens=500)
        self.agent = Agent(definition, model=PlayedModel(), toolbox=toolbox, profile=profile)
        received = MessageReceived(
            seq=2, event=1, message_id=M1, principal="ann", blocks=(text_block("t" * text_bytes),)
        )
        state = fold(ConversationState(), [ConversationCreated(seq=1, agent="clerk"), received])
        self.state = msgspec.structs.replace(state, context_version=1, context_us=1, **fields)
        self.folding = Folding(window=self.agent.window(4.0))
        self.records = sparing(self.state, begin=self._begin, foresee=self._foresee, window=self.folding.window)
        self.ahead = self._foresee(self.records)
        record = self.records[-1]
        assert isinstance(record, TurnPrepared)
        self.prepared = record

    @property
    def tokens(self) -> int:
        """Of the first request."""
        size_bytes = self.ahead.state.view.size_bytes + pending_bytes(self.ahead.state, ())
        return next_request_tokens(self.ahead.state, size_bytes, bytes_per_token=4.0)

    @property
    def offers_earlier(self) -> bool:
        return self.agent.offers_earlier(self.ahead.state)

    def _begin(self, less: Spared) -> list[JournalRecord]:
        return beginning(
            self.state,
            PrepareTurn(turn=1, messages=(M1,)),
            agent=self.agent,
            decided=EVERYTHING_ON,
            surroundings=Surroundings(policies=self.rules),
            now_us=1,
            less=less,
        )

    def _foresee(self, records: Sequence[JournalRecord]) -> Foreseen:
        ahead = foreseen(
            self.state,
            records,
            agent=self.agent,
            decided=EVERYTHING_ON,
            catalogue=NO_SKILLS,
            steps=StepOptions(),
            folding=self.folding,
            now_us=1,
        )
        size_bytes = ahead.state.preamble.size_bytes + ahead.state.view.size_bytes + pending_bytes(ahead.state, ())
        return ahead._replace(worst_bytes=size_bytes + 4 * self.found_tokens if self.found_tokens else 0)


def test_where_all_of_it_fits_nothing_is_cut_and_nothing_is_tried() -> None:
    begun = Begun(400, context=CONTEXT, generation=1)
    assert begun.prepared.cut == ()
    assert (len(begun.prepared.policies), begun.rules.searches) == (4, 1)
    assert begun.offers_earlier


def nearly(free_tokens: int, *, found_tokens: int = 0, **fields: object) -> Begun:
    """A message that leaves so many tokens below the limit, were it alone."""
    told = {name: field for name, field in fields.items() if name != "context"}
    bare = Begun(4 * LIMIT, found_tokens=0, **told)
    return Begun(4 * LIMIT - 4 * (bare.tokens - LIMIT) - 4 * free_tokens, found_tokens=found_tokens, **fields)


def test_excerpts_are_cut_to_what_is_free() -> None:
    begun = nearly(330)
    assert begun.ahead.is_asked
    assert begun.prepared.cut == ("policy_excerpts",)
    assert 1 <= len(begun.prepared.policies) <= 2
    assert begun.tokens <= LIMIT < begun.tokens + 200


def test_parts_of_the_context_go_when_there_is_no_excerpt_left() -> None:
    begun = nearly(150, context=CONTEXT)
    assert begun.ahead.is_asked
    assert begun.prepared.cut == ("policy_excerpts", "envelope")
    assert begun.prepared.policies == ()
    (signal,) = begun.prepared.signal
    assert b'id=\\"v7\\"' in bytes(signal)
    assert b"left_out=" in bytes(signal)
    assert begun.tokens <= LIMIT


def test_a_tool_that_would_be_new_goes_last() -> None:
    begun = nearly(8, generation=1)
    assert begun.ahead.is_asked
    assert begun.prepared.cut == ("policy_excerpts", "read_earlier")
    assert not begun.offers_earlier


@pytest.mark.parametrize("generation", [0, 1])
def test_where_that_does_not_help_either_all_of_it_is_left_out(generation: int) -> None:
    begun = nearly(-200, context=CONTEXT, generation=generation)
    assert not begun.ahead.is_asked
    assert begun.prepared.cut == ("policy_excerpts", "envelope", *["read_earlier"] * generation)
    assert begun.prepared.turn_only == begun.prepared.signal == ()


@pytest.mark.parametrize("found_tokens", [0, 60, 150])
def test_room_is_left_for_what_a_summariser_may_find_to_be_open(found_tokens: int) -> None:
    begun = nearly(330, found_tokens=found_tokens)
    assert begun.prepared.policies
    assert begun.tokens + found_tokens <= LIMIT < begun.tokens + found_tokens + 220


def test_where_there_may_be_no_room_for_that_even_so_all_of_it_is_left_out() -> None:
    begun = nearly(330, found_tokens=500)
    assert begun.ahead.is_asked
    assert (begun.prepared.cut, begun.prepared.policies) == (("policy_excerpts",), ())
