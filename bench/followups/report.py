"""Figures over many follow-ups: a table for people, JSON for programs, and what they do not say."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from bench.followups.answers import Answered
from bench.followups.compare import RECENT_TURNS, Cost, Outcome
from bench.followups.items import FOLDS, Kept
from bench.followups.judge import Place

VISIBLE: Final = (Place.VERBATIM, Place.SUMMARY)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one policy over many conversations. Of facts, counts."""

    policy: str
    follow_ups: int
    resolved: int
    """Follow-ups that see every fact they need."""
    facts: int
    verbatim: int
    summary: int
    journal: int
    nowhere: int
    recent: int
    """Facts said within the last two turns before their follow-up."""
    recent_visible: int
    older: int
    older_visible: int
    misled: int
    """Follow-ups that see what was corrected and not the correction."""
    correctable: int
    """Follow-ups that something corrected could mislead."""
    requests: int
    unsent: int
    tokens_per_request: float
    fresh_per_request: float
    """Tokens that no prompt cache can have, since the request before was another one there."""
    summariser_calls: int
    summariser_tokens: int
    folds: int
    mechanical: int
    failed: int


class Section(msgspec.Struct, frozen=True, kw_only=True):
    """One set of conversations in windows of one size."""

    set: str
    window: str
    conversations: int
    left_out: int
    """Follow-ups that are not judged here: nothing had to be folded before them, or their windows are not made for
    them."""
    figures: tuple[Figures, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    sections: tuple[Section, ...]
    items: tuple[Kept, ...]
    summarisers: tuple[str, ...]
    answers: tuple[Answered, ...] = ()
    model: str = ""
    """That answered and made summaries; empty for none."""


def figures(outcomes: Iterable[Outcome]) -> tuple[Figures, ...]:
    """One for each policy, in the order they came."""
    by_policy = dict[str, list[Outcome]]()
    for outcome in outcomes:
        by_policy.setdefault(outcome.policy, []).append(outcome)
    return tuple(_figures(policy, found) for policy, found in by_policy.items())


def _figures(policy: str, outcomes: Sequence[Outcome]) -> Figures:
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    facts = [pair for finding in findings for pair in zip(finding.places, finding.distances, strict=True)]
    recent = [place for place, distance in facts if distance <= RECENT_TURNS]
    older = [place for place, distance in facts if distance > RECENT_TURNS]
    cost = Cost(*map(sum, zip(*(outcome.cost for outcome in outcomes), strict=True)))
    requests = max(cost.requests, 1)
    return Figures(
        policy=policy,
        follow_ups=len(findings),
        resolved=sum(finding.is_resolved for finding in findings),
        facts=len(facts),
        **{place.value: sum(each is place for each, _ in facts) for place in Place},
        recent=len(recent),
        recent_visible=_visible(recent),
        older=len(older),
        older_visible=_visible(older),
        misled=sum(finding.misleads for finding in findings),
        correctable=sum(finding.has_stale for finding in findings),
        requests=cost.requests,
        unsent=cost.unsent,
        tokens_per_request=round(cost.tokens / requests, 1),
        fresh_per_request=round(cost.fresh / requests, 1),
        summariser_calls=cost.calls,
        summariser_tokens=cost.summary_tokens,
        folds=cost.folds,
        mechanical=cost.mechanical,
        failed=cost.failed,
    )


def _visible(places: Iterable[Place]) -> int:
    return sum(place in VISIBLE for place in places)


def as_builtins(report: Report) -> Any:
    """For programs."""
    return msgspec.to_builtins(report, str_keys=True)


_HEADINGS: Final = (
    "policy",
    "visible",
    "verbatim",
    "summary",
    "read_earlier",
    "nowhere",
    "last 2 turns",
    "older",
    "resolved",
    "misled",
    "unsent",
    "tokens/request",
    "fresh",
    "summariser",
    "folds",
)


def table(report: Report) -> str:
    """For people."""
    parts = [_section(section) for section in report.sections]
    parts += [_items(report.items)] if report.items else []
    parts += [_answers(report)] if report.answers else []
    return "\n\n".join((*parts, *_caveats(report)))


def _section(section: Section) -> str:
    first = section.figures[0]
    title = (
        f"{section.set}, {section.window}: {section.conversations} conversations, {first.facts} facts of "
        f"{first.follow_ups} follow-ups, {section.left_out} more left out"
    )
    return f"{title}\n{_aligned([_HEADINGS, *map(_cells, section.figures)])}"


def _cells(row: Figures) -> tuple[str, ...]:
    return (
        row.policy,
        _share(row.verbatim + row.summary, row.facts),
        _share(row.verbatim, row.facts),
        _share(row.summary, row.facts),
        _share(row.journal, row.facts),
        _share(row.nowhere, row.facts),
        f"{row.recent_visible}/{row.recent}",
        f"{row.older_visible}/{row.older}",
        f"{row.resolved}/{row.follow_ups}",
        f"{row.misled}/{row.correctable}",
        str(row.unsent),
        f"{row.tokens_per_request:,.0f}",
        f"{row.fresh_per_request:,.0f}",
        f"{row.summariser_calls} calls, {row.summariser_tokens:,} tokens",
        f"{row.folds}, {row.mechanical} mechanical, {row.failed} failed",
    )


def _items(rows: Sequence[Kept]) -> str:
    headings = ("open items still in the summary", *(f"after {folds} folds" for folds in FOLDS))
    lines = [
        (
            f"{row.summariser}, {'each named once' if row.is_named else 'left to itself'}",
            *(f"{row.visible[folds]}/{row.due[folds]}" for folds in FOLDS),
        )
        for row in rows
    ]
    return _aligned([headings, *lines])


def _answers(report: Report) -> str:
    headings = (f"answers of {report.model}, by match of strings", "matched", "no answer")
    lines = [(row.policy, f"{row.matched}/{row.asked}", str(row.failed)) for row in report.answers]
    return _aligned([headings, *lines])


def _caveats(report: Report) -> Iterable[str]:
    yield (
        "Left out: follow-ups before which nothing had to be folded, since all policies do the same then; where the "
        "window is made for one follow-up, all but those on the last two turns. "
        "visible: as it was said, or in the summary. read_earlier: what that tool answers for the turn; whether a "
        "model would ask is not measured. last 2 turns and older: visible of those facts. fresh: tokens per request "
        "behind the longest common beginning with the request before."
    )
    scripted = [name for name in report.summarisers if name != report.model]
    yield (
        f"Summaries by {', '.join(scripted)} are made by rules, no language model: what stands in them says nothing of "
        "what a model would keep. The rules for open items were written with the clinic's conversations in view."
    )
    if report.model:
        yield "A match of strings is no judgement: a right answer in other words is missed, a wrong one may pass."
    else:
        yield "No answers were made: that takes --model anthropic with a key, or --model local with --model-file."


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _share(count: int, of: int) -> str:
    return f"{count / of:.0%}" if of else "-"
