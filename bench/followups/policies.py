"""Other ways to keep a conversation in a window, over the journal of the same conversation with nothing folded.

Each sees the state at every request and gives the messages that it would have sent; they are as small as they look, and
use the engine's pure parts (the cut at turns, the reading and judging of summaries), not its decisions.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, Self

import msgspec

from bench.followups.spoken import Spoken
from torpor.clock import SystemClock
from torpor.conversation.budget import Profile, tokens_of_bytes
from torpor.conversation.fold import fold
from torpor.conversation.folding import folded, plan_of
from torpor.conversation.segments import TurnStart, rebuilt
from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Compact
from torpor.conversation.summary import Carried, CompactionOptions
from torpor.conversation.view import View
from torpor.model.contract import Model
from torpor.records.blocks import Block
from torpor.records.ids import ConversationKey
from torpor.records.journal import ContextReplaced, JournalRecord, ModelRequested
from torpor.records.summary import Summary
from torpor.records.terms import FoldReason
from torpor.turn.fold_history import HistoryFold, Spent, Summariser, SummariserOptions
from torpor.turn.places import FairPlaces

_NOBODY: Final = ConversationKey("bench", "nobody", "followups")

SUMMARISER_WINDOW: Final = 8_000
"""Tokens."""
_SUMMARY_SHARE: Final = 6
"""One part in so many of the budget, at most, is the summary's."""
_ITEM_TOKENS: Final = 40
_ITEMS_SHARE: Final = 0.15


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The window that all policies share, in tokens."""

    budget: int

    @classmethod
    def of(cls, whole_tokens: int, *, pressure: float) -> Self:
        """Args: whole_tokens: of the largest request when nothing is folded.  pressure: how many times the budget it
        is."""
        return cls(budget=math.ceil(whole_tokens / pressure))

    @classmethod
    def folding_at(cls, tokens: int) -> Self:
        """With the threshold just below a request of so many tokens."""
        return cls(budget=math.floor(tokens / CompactionOptions().threshold_share))

    @property
    def reserve(self) -> int:
        """For the reply."""
        return self.budget // 10

    @property
    def limit(self) -> int:
        """A larger request does not fit."""
        return self.budget - self.reserve

    @property
    def threshold(self) -> int:
        """Above it, a policy that folds does."""
        return math.floor(self.options.threshold_share * self.budget)

    @property
    def profile(self) -> Profile:
        return Profile(budget_tokens=self.budget, headroom_tokens=self.reserve)

    @property
    def options(self) -> CompactionOptions:
        """Caps in proportion to the budget."""
        items_max = max(round(_ITEMS_SHARE * self.budget / _ITEM_TOKENS), 2)
        return CompactionOptions(
            summary_tokens=max(self.budget // _SUMMARY_SHARE, 30), items_max=items_max, item_tokens=_ITEM_TOKENS
        )


class Policy(Protocol):
    """One way; has what it remembers from request to request."""

    async def view(self, state: ConversationState) -> View | None:
        """The messages to send; None when nothing that fits can be sent. Args: state: with nothing folded."""
        ...


def requested(records: Iterable[JournalRecord]) -> Iterator[ConversationState]:
    """The state at each request."""
    state = ConversationState()
    for record in records:
        state = fold(state, (record,))
        if isinstance(record, ModelRequested):
            yield state


def tokens_of(state: ConversationState, view: View) -> int:
    """Of a request for ``view``."""
    return tokens_of_bytes(state.preamble.size_bytes + view.size_bytes)


class NoCompaction:
    """Sends everything, until it no longer fits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    async def view(self, state: ConversationState) -> View | None:
        return state.view if tokens_of(state, state.view) <= self._limits.limit else None


class SlidingWindow:
    """Drops the oldest turns once a request would not fit."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._from = 1

    async def view(self, state: ConversationState) -> View | None:
        while True:
            starts = _since(state, self._from)
            view, _ = rebuilt(state.view, starts, head=())
            if tokens_of(state, view) <= self._limits.limit:
                return view
            if len(starts) == 1:
                return None
            self._from = starts[1].turn


class Folds:
    """Counted over all lines of a conversation."""

    def __init__(self) -> None:
        self.made = 0
        self.mechanical = 0
        """Those among them that no summariser made."""


class SummariseEverything:
    """Folds all but the running turn into a summary, above the threshold, and keeps no items apart from it."""

    def __init__(self, limits: Limits, *, summariser: Model) -> None:
        self._limits = limits
        self._summariser = Summariser(
            SummariserOptions(), model=summariser, name="small", window_tokens=SUMMARISER_WINDOW
        )
        self._from = 1
        self._head: tuple[Block, ...] = ()
        self._summary = Summary()
        self._generation = 0
        self._failed_turn = 0
        self.folds = Folds()

    async def view(self, state: ConversationState) -> View | None:
        now = self._as_seen(state)
        if tokens_of(now, now.view) > self._limits.threshold and len(now.starts) > 1:
            now = await self._folded(state, now)
        return now.view if tokens_of(now, now.view) <= self._limits.limit else None

    def _as_seen(self, state: ConversationState) -> ConversationState:
        view, starts = rebuilt(state.view, _since(state, self._from), head=self._head)
        return msgspec.structs.replace(
            state, view=view, starts=starts, summary=self._summary, generation=self._generation, items=()
        )

    async def _folded(self, state: ConversationState, now: ConversationState) -> ConversationState:
        """By the summariser, once a turn; without it where the request would not fit."""
        assert state.turn is not None
        turn, tokens = state.turn.number, tokens_of(now, now.view)
        if turn != self._failed_turn:
            fold_ = HistoryFold(
                self._summariser,
                options=self._limits.options,
                places=FairPlaces(1, monotonic_s=SystemClock().monotonic_s).of(_NOBODY),
                skills=frozenset(),
                spent=Spent(),
            )
            step = Compact(turn=turn, round=1, attempt=1, reason=FoldReason.EVERYTHING, tokens=tokens)
            made = await fold_.record(now, step)
            if isinstance(made, ContextReplaced):
                return self._replaced(state, made)
            self._failed_turn = turn
        if tokens <= self._limits.limit:
            return now
        self.folds.mechanical += 1
        record = folded(
            now,
            plan_of(now, FoldReason.EVERYTHING),
            reason=FoldReason.EVERYTHING,
            summary=None,
            carried=Carried(items=()),
            skills=frozenset(),
            options=self._limits.options,
        )
        return self._replaced(state, record)

    def _replaced(self, state: ConversationState, record: ContextReplaced) -> ConversationState:
        self.folds.made += 1
        facts = (*record.summary.facts, *(item.text for item in record.items))
        self._summary = msgspec.structs.replace(record.summary, facts=facts)
        self._head, self._from, self._generation = record.head, record.kept_from, record.generation
        return self._as_seen(state)


def _since(state: ConversationState, turn: int) -> tuple[TurnStart, ...]:
    return tuple(start for start in state.starts if start.turn >= turn)


async def sent(policy: Policy, whole: Spoken) -> list[list[tuple[ConversationState, View | None]]]:
    """What ``policy`` sends in each line, from its first turn. Args: whole: spoken with nothing folded."""
    common = [(state, await policy.view(state)) for state in requested(whole.common.records)]
    lines = []
    for line in whole.lines:
        branch = copy.copy(policy)  # what it remembers is replaced, never changed
        own = [*requested(line.records)][len(common) :]
        lines.append([*common, *[(state, await branch.view(state)) for state in own]])
    return lines
