"""What ``torpor inspect`` tells of requests: one as it was sent, what changed, why, and what a cache may have kept."""

from collections.abc import Callable, Iterable

import click
import msgspec

from torpor.cli.output import print_json, print_table
from torpor.cli.terminal import harmless
from torpor.operations.budgets import sections_of
from torpor.operations.difference import difference
from torpor.operations.origins import Origins, origins
from torpor.operations.prefix import PrefixSummary, RequestPrefix, prefixes, summary_of
from torpor.operations.requests import Chosen, chosen
from torpor.records.journal import JournalRecord

Journal = Callable[[], Iterable[JournalRecord]]
"""The records from the first one on, each time it is called."""


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """The request that is meant: the last one that fits."""

    name: str
    """Of the conversation."""
    turn: int = 0
    """0 for any."""
    call: str = ""
    """Empty for any."""

    def of(self, journal: Journal) -> Chosen:
        """Raises: click.ClickException: there is none."""
        found = chosen(journal(), turn=self.turn, call=self.call)
        if found is None:
            raise self.missing()
        return found

    def missing(self) -> click.ClickException:
        """There is no such request."""
        where = f"turn {self.turn} of {self.name!r}" if self.turn else repr(self.name)
        what = f"no request {self.call!r}" if self.call else "no request yet"
        return click.ClickException(f"{where} has {what}, expected one; `torpor inspect` shows what there is")


def show_request(journal: Journal, which: Which) -> None:
    """One line of JSON, byte for byte what was hashed."""
    click.echo(which.of(journal).request.body())


def show_difference(journal: Journal, which: Which, *, as_json: bool) -> None:
    """From the request before it, whichever turn that belongs to."""
    found = which.of(journal)
    request, previous = found.request, found.previous
    lines = difference(previous.body() if previous is not None else b"{}", request.body())
    if as_json:
        before = {"seq": previous.seq, "call": previous.call} if previous is not None else None
        print_json({"seq": request.seq, "call": request.call, "before": before, "lines": lines})
        return
    click.echo(f"--- {_named(previous.turn, previous.call, previous.seq) if previous is not None else 'nothing'}")
    click.echo(f"+++ {_named(request.turn, request.call, request.seq)}")
    for line in lines:
        click.echo(harmless(line))  # what was said may hold what a terminal obeys


def show_origins(journal: Journal, which: Which, *, as_json: bool) -> None:
    """A line for each part."""
    seq = which.of(journal).request.seq
    found = origins(journal(), seq=seq)
    if found is None:
        raise click.ClickException(f"the journal of {which.name!r} changed while it was read, try again")
    if as_json:
        for part in found.parts:
            print_json(part)
        return
    for line in _origins_in_words(found):
        click.echo(harmless(line))
    print_table(
        ("PART", "NAME", "WHY", "TURN", "RECORD"),
        [(part.part, part.name, part.detail, part.turn or "", part.seq) for part in found.parts],
    )


def show_prefixes(journal: Journal, *, turn: int, as_json: bool) -> None:
    """A line for each request of ``turn`` (0 for all), and the medians over the whole conversation."""
    found = list(prefixes(journal()))
    shown = [each for each in found if turn in {0, each.turn}]
    summary = summary_of(found)
    if as_json:
        for each in shown:
            print_json(each)
        print_json(summary)
        return
    print_table(
        ("TURN", "CALL", "RECORD", "BYTES", "COMMON", "SHARE", "BROKEN BY", "INPUT", "READ FROM CACHE"),
        [_prefix_cells(each) for each in shown],
    )
    click.echo(_summary_in_words(summary))


def _named(turn: int, call: str, seq: int) -> str:
    return f"turn {turn}, call {call}, record {seq}"


def _origins_in_words(found: Origins) -> list[str]:
    request = found.request
    model = f", asked of {request.model} in place of the preamble's model" if request.model else ""
    told = sections_of(request) if request.budget_tokens else request.sections
    sections = ", ".join(f"{name} {tokens:,}" for name, tokens in told.items() if tokens)
    return [f"{_named(request.turn, request.call, request.seq)}{model}", f"estimated tokens: {sections}"]


def _prefix_cells(each: RequestPrefix) -> tuple[object, ...]:
    read = (
        f"{each.cache_read_tokens:,} ({each.cache_read_tokens / each.input_tokens:.1%})" if each.input_tokens else "-"
    )
    share = f"{each.share:.1%}" if each.share is not None else "-"
    counted = f"{each.input_tokens:,}" if each.input_tokens else "-"
    common = f"{each.common_bytes:,}"
    return (each.turn, each.call, each.seq, f"{each.size_bytes:,}", common, share, each.cause or "-", counted, read)


def _summary_in_words(summary: PrefixSummary) -> str:
    def told(share: float | None) -> str:
        return f"{share:.1%}" if share is not None else "-"

    broken = ", ".join(f"{count} by {cause}" for cause, count in summary.breaks.items()) or "none"
    return (
        f"median of what the request before had sent: {told(summary.within_turns)} within turns, "
        f"{told(summary.across_turns)} across turns; broken: {broken}; "
        f"read from the host's cache: {told(summary.cache_read_share)} of all input"
    )
