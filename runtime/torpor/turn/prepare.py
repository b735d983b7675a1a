"""What a turn begins with, as records: flags pinned, preamble, context signal, look-back, policy excerpts.

Everything that the model will be told beside the user's words is rendered here, once, and frozen into the record; later
calls of the turn only repeat it. Two things may have to be waited for, and are before: flags where another provider
has not been asked yet, and earlier exchanges where a message asks for them.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from torpor.conversation.budget import encoded_tokens, tokens_of_bytes
from torpor.conversation.lately import preamble_record
from torpor.conversation.live_context import LiveContextOptions
from torpor.conversation.markup import element, escaped_lines, group
from torpor.conversation.publish import text_of
from torpor.conversation.quoting import Lookback
from torpor.conversation.signals import ContextOptions, Signal, is_expired, signal_of
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import PrepareTurn
from torpor.conversation.text import clean
from torpor.flags.contract import EVERYTHING_ON, Decided, FlagContext
from torpor.policies.parse import Excerpt
from torpor.records.blocks import Block, text_block
from torpor.records.flag_decision import FlagDecision
from torpor.records.journal import FlagsPinned, FlagsReturned, JournalRecord, TurnPrepared
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.load import Shelf
from torpor.skillbook.options import SkillOptions
from torpor.toolhost.contract import Lent
from torpor.turn.agents import Agent
from torpor.turn.attached import NO_FILES, AttachedFiles
from torpor.turn.definition import EVERY
from torpor.turn.sparing import NOTHING, Spared

LIVE_FLAG: Final = "live_context"
POLICIES_NOTE: Final = "name the id and version of the rule that you rely on"


NOTHING_QUOTED: Final = Lookback()
NO_SKILLS: Final = Catalogue(Shelf(), options=SkillOptions())


class FlagSource(Protocol):
    """Implemented by ``flags.face.Flags``."""

    def decided(self, context: FlagContext) -> Decided | None: ...

    async def ask(self, context: FlagContext) -> Decided: ...


class SkillShelf(Protocol):
    """Implemented by ``skillbook.reload.SkillBook``."""

    @property
    def current(self) -> Catalogue: ...


class PolicySearch(Protocol):
    """Implemented by ``policies.book.PolicyBook``."""

    def search(
        self, text: str, *, limit: int, budget_tokens: int, ids: frozenset[str] | None = None
    ) -> tuple[Excerpt, ...]: ...


class AllOn:
    """Implements ``FlagSource`` where no flag is declared."""

    def decided(self, context: FlagContext) -> Decided:
        del context
        return EVERYTHING_ON

    async def ask(self, context: FlagContext) -> Decided:
        return self.decided(context)


class NoSkills:
    """Implements ``SkillShelf`` where there are none."""

    current: Catalogue = NO_SKILLS


class NoPolicies:
    """Implements ``PolicySearch`` where there are none."""

    def search(
        self, text: str, *, limit: int, budget_tokens: int, ids: frozenset[str] | None = None
    ) -> tuple[Excerpt, ...]:
        del text, limit, budget_tokens, ids
        return ()


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What turns draw on beside the conversation; shared by all of a process."""

    flags: FlagSource = AllOn()
    skills: SkillShelf = NoSkills()
    policies: PolicySearch = NoPolicies()
    context: ContextOptions = ContextOptions()
    live: LiveContextOptions = LiveContextOptions()
    attached: AttachedFiles = NO_FILES
    excerpts_max: int = 4
    excerpts_tokens: int = 2_500
    """For an agent whose profile grants policies no allotment of their own."""


def beginning(
    state: ConversationState,
    step: PrepareTurn,
    *,
    agent: Agent,
    decided: Decided,
    surroundings: Surroundings,
    now_us: int,
    lookback: Lookback = NOTHING_QUOTED,
    less: Spared = NOTHING,
    lent: Lent | None = None,
) -> list[JournalRecord]:
    """The records that begin the turn, in order; the last one is ``TurnPrepared``.

    Args: lookback: the quotation that the messages ask for.  less: what is cut for want of room.  lent: tools beside
        the agent's own.
    """
    has_earlier = agent.has_earlier(state) and not (less.is_without_tool and not agent.offers_earlier(state))
    offer = agent.offer(decided, surroundings.skills.current, has_earlier=has_earlier, lent=lent)
    records = list[JournalRecord]()
    if decided.digest != (state.flags_digest or EVERYTHING_ON.digest):
        records.append(_flags_record(state, decided))
    if offer.preamble.digest != state.preamble.digest:
        records.append(preamble_record(state, offer.preamble))
    signal = _signal(state, agent, surroundings=surroundings, now_us=now_us, less=less)
    excerpts = _excerpts(state, step, agent=agent, surroundings=surroundings, less=less)
    told = policies_text(excerpts)
    has_live = agent.live is not None and decided.is_on(LIVE_FLAG) and bool(state.live.block)
    sections = {
        "live_context": encoded_tokens(state.live.block[0]) if has_live else 0,
        "envelope": signal.tokens,
        "policy_excerpts": encoded_tokens(told) if told else 0,
        "lookback": lookback.tokens,
    }
    records.append(
        TurnPrepared(
            turn=step.turn,
            messages=step.messages,
            signal=_blocks(signal.text),
            turn_only=(*_blocks(lookback.text), *_blocks(told)),
            sections={name: tokens for name, tokens in sections.items() if tokens},
            labels=signal.labels,
            withheld=signal.withheld,
            policies=tuple(f"{excerpt.id}@{excerpt.version}" for excerpt in excerpts),
            lookback=lookback.turns,
            live=state.live.seq if has_live else 0,
            cut=less.names,
        )
    )
    return records


def _blocks(text: str) -> tuple[Block, ...]:
    return (text_block(text),) if text else ()


def policies_text(excerpts: Sequence[Excerpt]) -> str:
    """Excerpts as the model reads them; empty when there are none."""
    elements = (
        element(
            "excerpt",
            escaped_lines(excerpt.text),
            attributes={"id": excerpt.id, "version": excerpt.version, "heading": excerpt.heading},
        )
        for excerpt in excerpts
    )
    return clean(group("policies", elements, attributes={"note": POLICIES_NOTE})).text


def _flags_record(state: ConversationState, decided: Decided) -> FlagsPinned | FlagsReturned:
    """What pins them: the decisions themselves where they are not remembered."""
    if decided.digest in state.flags:
        return FlagsReturned(digest=decided.digest)
    decisions = tuple(
        FlagDecision(key=key, value=decision.value, variant=decision.variant, reason=decision.reason)
        for key, decision in decided.decisions.items()
    )
    return FlagsPinned(digest=decided.digest, decisions=decisions)


def _signal(state: ConversationState, agent: Agent, *, surroundings: Surroundings, now_us: int, less: Spared) -> Signal:
    context, options = state.context, surroundings.context
    if context is None or is_expired(state.context_us, now_us=now_us, options=options):
        return Signal()
    tokens_max = agent.profile.workflow_tokens
    if less.signal_tokens is not None:
        tokens_max = max(min(less.signal_tokens, tokens_max or less.signal_tokens), 1)
    return signal_of(
        context,
        version=state.context_version,
        labels=frozenset(agent.definition.labels),
        options=options,
        tokens_max=tokens_max,
    )


def _excerpts(
    state: ConversationState, step: PrepareTurn, *, agent: Agent, surroundings: Surroundings, less: Spared
) -> tuple[Excerpt, ...]:
    """What fits the messages, whole excerpts within the allotment as they stand in a request, markup and escapes
    included."""
    allowed = agent.definition.policies
    if not allowed:
        return ()
    budget_tokens = agent.profile.policies_tokens or surroundings.excerpts_tokens
    if less.excerpts_tokens is not None:
        budget_tokens = min(less.excerpts_tokens, budget_tokens)
    text = " ".join(text_of(message.blocks) for message in state.queued if message.id in step.messages)
    room_tokens = budget_tokens
    while room_tokens > 0:
        found = surroundings.policies.search(
            text,
            limit=surroundings.excerpts_max,
            budget_tokens=room_tokens,
            ids=None if EVERY in allowed else frozenset(allowed),
        )
        told_tokens = encoded_tokens(policies_text(found))
        if told_tokens <= budget_tokens:
            return found
        # In proportion, and less than what was found this time, so that something must give way.
        spent_tokens = tokens_of_bytes(sum(len(each.text.encode()) for each in found))
        room_tokens = min(spent_tokens - 1, spent_tokens * budget_tokens // told_tokens)
    return ()
