"""Where the tokens of one request went, as bars that a person can read; pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.conversation.budget import SECTIONS
from torpor.records.journal import JournalRecord, ModelRequested

BAR_CHARS: Final = 40
"""Of the whole request."""
CORRECTION: Final = "correction"
"""What the sections, at four bytes a token, come to less or more than the request was expected to be counted as."""
HEADROOM: Final = "headroom"


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


class RequestBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A request beside what it may take."""

    turn: int
    call: str
    budget_tokens: int
    request_tokens: int
    """As it was expected to be counted; all sections but ``headroom`` together."""
    sections: tuple[SectionShare, ...]
    """Every section there is, also where it is empty."""


def budget_of(records: Iterable[JournalRecord], *, turn: int = 0, call: str = "") -> RequestBudget | None:
    """Of the last request of ``turn`` (0 for any) that ``call`` names (empty for any); None when there is none that was
    measured."""
    last = None
    for record in records:
        if isinstance(record, ModelRequested) and record.budget_tokens:
            is_meant = turn in {0, record.turn} and call in {"", record.call}
            last = record if is_meant else last
    return _budget(last) if last is not None else None


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


def _budget(record: ModelRequested) -> RequestBudget:
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
    )
