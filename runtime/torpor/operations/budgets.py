"""Where the tokens of one request went, as bars that a person can read, and what a sub-agent used of its own; pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.conversation.budget import SECTIONS, added, tokens_of
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    ConversationCreated,
    JournalRecord,
    ModelReplied,
    ModelRequested,
    SubagentFinished,
)
from torpor.records.terms import Usage
from torpor.records.work_budget import WorkBudget

BAR_CHARS: Final = 40
"""Of the whole request."""
CORRECTION: Final = "correction"
"""What the sections, at four bytes a token, come to less or more than the request was expected to be counted as."""
HEADROOM: Final = "headroom"
_MICROSECONDS: Final = 1_000_000


class SectionShare(msgspec.Struct, frozen=True, kw_only=True):
    """One section of a request."""

    section: str
    tokens: int
    """Estimated; of ``correction`` and ``headroom``, what is left, these may be less than nothing."""
    share: float
    """Of the budget."""
    share_of_request: float
    """0 for ``headroom``, which is no part of it."""
    is_over: bool
    """Whether it draws on an allotment that is exceeded."""
    allotment: str = ""
    """The one that it draws on, with others; empty for ``correction``."""


class WorkUsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a sub-agent used of its own budget, as it is counted against that."""

    steps: int
    """Model calls that were answered."""
    steps_max: int
    tokens: int
    """Of these and of folds, and of sub-agents below it that have ended."""
    tokens_max: int
    """0 for no limit."""
    seconds: float
    """From its first record to its last one."""
    seconds_max: float


class RequestBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A request beside what it may take."""

    turn: int
    call: str
    budget_tokens: int
    request_tokens: int
    """As it was expected to be counted; all sections but ``headroom`` together."""
    sections: tuple[SectionShare, ...]
    """Every section there is, also where it is empty."""
    work: WorkUsed | None = None
    """Of a sub-agent, all of it, whichever request is meant; None for a conversation, and where nobody recorded it."""


def budget_of(records: Iterable[JournalRecord], *, turn: int = 0, call: str = "") -> RequestBudget | None:
    """Of the last request of ``turn`` (0 for any) that ``call`` names (empty for any); None when there is none that was
    measured."""
    last, work = None, _Work()
    for record in records:
        work.take(record)
        if isinstance(record, ModelRequested) and record.budget_tokens:
            is_meant = turn in {0, record.turn} and call in {"", record.call}
            last = record if is_meant else last
    return _budget(last, work=work.used()) if last is not None else None


def work_in_words(work: WorkUsed) -> str:
    """What was used of each of the three."""
    tokens = f"{work.tokens:,} of {work.tokens_max:,} tokens" if work.tokens_max else f"{work.tokens:,} tokens"
    seconds = f"{work.seconds:.1f} of {work.seconds_max:,.1f} s"
    return f"of its own budget: {work.steps} of {work.steps_max} steps, {tokens}, {seconds}"


def bars(budget: RequestBudget) -> list[str]:
    """A head, and a line for each section that tells its share of the request and of the budget; the bars are of the
    request, since in a large window all of them would be empty."""
    used = f"about {budget.request_tokens:,} of {budget.budget_tokens:,} tokens"
    head = f"{'SECTION':<16} {'OF THE REQUEST':<{BAR_CHARS}} {'TOKENS':>10} {'REQUEST':>8} {'BUDGET':>7}"
    return [f"turn {budget.turn}, call {budget.call}: {used}", head, *map(_bar, budget.sections)]


def _bar(each: SectionShare) -> str:
    filled = min(max(round(each.share_of_request * BAR_CHARS), 1 if each.share_of_request > 0 else 0), BAR_CHARS)
    bar = " " * BAR_CHARS if each.section == HEADROOM else "#" * filled + "." * (BAR_CHARS - filled)
    share = "" if each.section == HEADROOM else f"{each.share_of_request:.1%}"
    over = ""
    if each.is_over:
        over = "  less than its allotment" if each.section == HEADROOM else f"  {each.allotment} is over its allotment"
    return f"{each.section:<16} {bar} {each.tokens:>10,} {share:>8} {each.share:>7.1%}{over}"


def sections_of(record: ModelRequested) -> dict[str, int]:
    """Tokens of every section there is, with what makes them add up to the request, and what is left of its budget."""
    told = {name: record.sections.get(name, 0) for sections in SECTIONS.values() for name in sections}
    request_tokens = record.estimated_tokens or sum(told.values())
    told[CORRECTION] = request_tokens - sum(told.values())
    told[HEADROOM] = record.budget_tokens - request_tokens
    return told


class _Work:
    """Adds up what a sub-agent used, record by record."""

    def __init__(self) -> None:
        self._budget: WorkBudget | None = None
        self._steps, self._usage = 0, Usage()
        self._began_us = self._ended_us = 0

    def take(self, record: JournalRecord) -> None:
        self._ended_us = record.at_us
        match record:
            case ConversationCreated():
                self._budget, self._began_us = record.budget, record.at_us
            case ModelReplied():
                self._steps += 1
                self._usage = added(self._usage, record.usage)
            case ContextReplaced() | CompactionFailed() | SubagentFinished():
                self._usage = added(self._usage, record.usage)
            case _:
                pass

    def used(self) -> WorkUsed | None:
        if self._budget is None:
            return None
        return WorkUsed(
            steps=self._steps,
            steps_max=self._budget.steps,
            tokens=tokens_of(self._usage),
            tokens_max=self._budget.tokens,
            seconds=max(self._ended_us - self._began_us, 0) / _MICROSECONDS,
            seconds_max=self._budget.seconds,
        )


def _budget(record: ModelRequested, *, work: WorkUsed | None) -> RequestBudget:
    drawn = {section: allotment for allotment, sections in SECTIONS.items() for section in sections}
    told = sections_of(record)
    request_tokens = record.budget_tokens - told[HEADROOM]
    shares = tuple(
        SectionShare(
            section=name,
            tokens=tokens,
            share=tokens / record.budget_tokens,
            share_of_request=0.0 if name == HEADROOM else tokens / max(request_tokens, 1),
            is_over=tokens != 0 and drawn.get(name, name) in record.over,
            allotment=drawn.get(name, HEADROOM if name == HEADROOM else ""),
        )
        for name, tokens in told.items()
    )
    return RequestBudget(
        turn=record.turn,
        call=record.call,
        budget_tokens=record.budget_tokens,
        request_tokens=request_tokens,
        sections=shares,
        work=work,
    )
