"""Records of a journal -> rows that a person can read, in order; pure.

A row says what happened, how long after the record before it, and what it cost. What was said, to a tool or by one, is
left out unless ``content`` asks for it: operators look at timelines of conversations that are not theirs.

A request's tokens are estimated before it is sent and counted by the host that answers; a reply's row tells both, and
``estimates`` how far they were apart over all rows.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Final

import msgspec

from torpor.conversation.budget import added, input_tokens
from torpor.operations.descriptions import Facts, describe
from torpor.records.bounds import MOMENT_MAX_US
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    LateResult,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    Record,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    ToolStarted,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Outcome, Usage

_OF_CHILD: Final = "sub-agent "
"""Before its name, which may be that of a call."""
_BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One record as people read it."""

    seq: int
    at_us: int
    """UTC, microseconds."""
    after_us: int
    """Since the record before; 0 for the first row."""
    turn: int
    event: int
    """Number of its public event; 0 when it has none."""
    kind: str
    """The record's tag."""
    summary: str
    """One line without content."""
    facts: Facts
    """The same for machines."""
    took_us: int | None = None
    """From the request to the reply; from the start of a tool, a sub-agent or a turn to its end."""
    turn_usage: Usage | None = None
    """Of a turn's end: tokens of all that it asked models for, its sub-agents included but for such as outlive it."""
    subagents_usage: Usage | None = None
    """The same: those of its sub-agents alone; None where it had none."""
    estimated_tokens: int | None = None
    """Of a reply: what its request was thought to have. None where nothing was estimated or nothing counted."""
    estimate_error: float | None = None
    """The same: how far that was above (or below) what was counted, as a share of it; 0.05 is 5 per cent too many."""
    content: str | None = None
    """What was said; None unless it was asked for."""


class Estimates(msgspec.Struct, frozen=True, kw_only=True):
    """How good the estimates of a conversation were."""

    requests: int
    """Estimated and counted."""
    median_error: float
    """Of the errors without their signs, as a share of what was counted."""


class Timeline:
    """Turns records into rows; keeps only when the things began that are still open."""

    def __init__(self, *, content: bool = False) -> None:
        self._content = content
        self._previous_us: int | None = None
        self._begun_us: dict[str, int] = {}
        self._estimated: tuple[str, int] = ("", 0)
        self._errors: list[float] = []
        self._turn = 0
        """Whose beginning was among the rows, while it runs."""
        self._usage = self._subagents = Usage()
        """Of the turn so far."""

    def rows(self, records: Iterable[JournalRecord]) -> Iterator[TimelineRow]:
        """Rows for ``records``, which follow those of the call before."""
        for record in records:
            summary, facts, content = describe(record)
            estimated_tokens, error = self._estimate(record)
            usage, subagents = self._spent(record)
            yield TimelineRow(
                seq=record.seq,
                at_us=record.at_us,
                after_us=record.at_us - self._previous_us if self._previous_us is not None else 0,
                turn=record.turn,
                event=record.event,
                kind=_tag(record),
                summary=summary,
                facts=facts,
                took_us=self._took_us(record),
                turn_usage=usage,
                subagents_usage=subagents,
                estimated_tokens=estimated_tokens,
                estimate_error=error,
                content=content if self._content else None,
            )
            self._previous_us = record.at_us

    def estimates(self) -> Estimates | None:
        """Over the rows so far; None when no request of them was both estimated and counted."""
        if not self._errors:
            return None
        return Estimates(requests=len(self._errors), median_error=median(map(abs, self._errors)))

    def _estimate(self, record: JournalRecord) -> tuple[int, float] | tuple[None, None]:
        match record:
            case ModelRequested():
                self._estimated = (record.call, record.estimated_tokens)
            case ModelReplied() if counted := input_tokens(record.usage):
                call, tokens = self._estimated
                if call == record.call and tokens:
                    self._errors.append((tokens - counted) / counted)
                    return tokens, self._errors[-1]
            case _:
                pass
        return None, None

    def _spent(self, record: JournalRecord) -> tuple[Usage | None, Usage | None]:
        match record:
            case TurnPrepared():
                self._turn, self._usage, self._subagents = record.turn, Usage(), Usage()
            case ModelReplied() | ContextReplaced() | CompactionFailed() if record.turn == self._turn:
                self._usage = added(self._usage, record.usage)
            case SubagentFinished() if record.turn == self._turn:
                self._usage = added(self._usage, record.usage)
                self._subagents = added(self._subagents, record.usage)
            case TurnFinished() | TurnCancelled() | TurnFailed() | TurnRefused() if record.turn == self._turn:
                self._turn = 0
                return self._usage, self._subagents if self._subagents != Usage() else None
            case _:
                pass
        return None, None

    def _took_us(self, record: JournalRecord) -> int | None:
        match record:
            case TurnPrepared():
                self._begun_us["turn"] = record.at_us
            case ModelRequested():
                self._begun_us["model"] = record.at_us
            case ToolStarted():
                self._begun_us[record.call_id] = record.at_us
            case ModelReplied() | ModelFailed():
                return self._since("model", record.at_us)
            case ToolFinished(outcome=Outcome.UNKNOWN):
                began_us = self._begun_us.get(record.call_id)  # kept: it may still end, in a late result
                return record.at_us - began_us if began_us is not None else None
            case ToolFinished() | LateResult():
                return self._since(record.call_id, record.at_us)
            case SubagentStarted():
                self._begun_us[_OF_CHILD + record.child] = record.at_us
            case SubagentFinished():
                return self._since(_OF_CHILD + record.child, record.at_us)
            case TurnFinished() | TurnCancelled() | TurnFailed() | TurnRefused():
                return self._since("turn", record.at_us)
            case _:
                pass
        return None

    def _since(self, what: str, at_us: int) -> int | None:
        began_us = self._begun_us.pop(what, None)
        return at_us - began_us if began_us is not None else None


def in_words(row: TimelineRow) -> str:
    """A row as one line of text; its content, indented, on the lines behind it."""
    took = f", took {duration(row.took_us)}" if row.took_us is not None else ""
    if row.estimate_error is not None:
        took = f", {row.estimated_tokens} estimated ({row.estimate_error:+.1%}){took}"
    if row.turn_usage is not None and row.subagents_usage is not None:
        took += f", {_tokens(row.turn_usage)} in all, {_tokens(row.subagents_usage)} of them by sub-agents"
    turn = f"turn {row.turn}" if row.turn else ""
    line = f"{row.seq:>5}  {_moment(row.at_us)}  {'+' + duration(row.after_us):>10}  {turn:<8} {row.summary}{took}"
    return "\n".join([line, *(f"{'':55}| {said}" for said in (row.content or "").splitlines())])


def _tokens(usage: Usage) -> str:
    return f"{input_tokens(usage)} tokens in and {usage.output_tokens} out"


def estimates_in_words(estimates: Estimates) -> str:
    """The line below the rows."""
    requests = f"{estimates.requests} request{'s' * (estimates.requests != 1)}"
    return f"tokens estimated for {requests}, median error {estimates.median_error:.1%}"


def duration(us: int) -> str:
    """A span for people: three digits and a unit."""
    if abs(us) < 1_000:
        return f"{us} us"
    for limit_us, unit_us, unit in ((999_500, 1_000, "ms"), (59_950_000, 1_000_000, "s")):
        if abs(us) < limit_us:
            return f"{us / unit_us:.3g} {unit}"
    minutes, seconds = divmod((us + 500_000) // 1_000_000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _moment(at_us: int) -> str:
    """Of a moment that no calendar has, the number."""
    if not 0 <= at_us <= MOMENT_MAX_US:
        return f"{at_us} us"
    return (_BEGINNING + timedelta(microseconds=at_us)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _tag(record: Record) -> str:
    return str(record.__struct_config__.tag)
