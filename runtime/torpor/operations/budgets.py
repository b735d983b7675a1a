"""Where the tokens of one request went, as bars that a person can read; pure."""

from collections.abc import Iterable
from typing import Final

import msgspec

from torpor.conversation.budget import SECTIONS
from torpor.records.journal import JournalRecord, ModelRequested

BAR_CHARS: Final = 40
"""Of the whole budget."""


class SectionShare(msgspec.Struct, frozen=True, kw_only=True):
    """One section of a request."""

    section: str
    tokens: int
    """Estimated; of ``headroom``, what is left, which may be less than nothing."""
    share: float
    """Of the budget."""
    is_over: bool
    """Whether the allotment that it draws on is exceeded."""


class RequestBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A request beside what it may take."""

    turn: int
    call: str
    budget_tokens: int
    sections: tuple[SectionShare, ...]
    """Every section there is, also where it is empty."""


def budget_of(records: Iterable[JournalRecord], *, turn: int = 0) -> RequestBudget | None:
    """Of the last request of ``turn``, or of all turns for 0; None when there is none that was measured."""
    last = None
    for record in records:
        if isinstance(record, ModelRequested) and record.budget_tokens and turn in {0, record.turn}:
            last = record
    return _budget(last) if last is not None else None


def bars(budget: RequestBudget) -> list[str]:
    """A line for each section."""
    lines = [f"turn {budget.turn}, call {budget.call}: {budget.budget_tokens:,} tokens"]
    for each in budget.sections:
        filled = min(max(round(each.share * BAR_CHARS), 1 if each.tokens > 0 else 0), BAR_CHARS)
        bar = "#" * filled + "." * (BAR_CHARS - filled)
        over = "  over its allotment" if each.is_over else ""
        lines.append(f"{each.section:<16} {bar} {each.tokens:>10,} {each.share:>7.1%}{over}")
    return lines


def _budget(record: ModelRequested) -> RequestBudget:
    drawn = {section: allotment for allotment, sections in SECTIONS.items() for section in sections}
    names = (*drawn, "headroom")
    shares = tuple(
        SectionShare(
            section=name,
            tokens=(tokens := record.sections.get(name, 0)),
            share=tokens / record.budget_tokens,
            is_over=drawn.get(name, name) in record.over,
        )
        for name in names
    )
    return RequestBudget(turn=record.turn, call=record.call, budget_tokens=record.budget_tokens, sections=shares)
