"""Conversations as a whole: taken away, begun again under the same id, and begun as copies of others.

An id may name several conversations, one after the other. ``lives_of`` gives each of them a case of its own: what was
noted belongs to the one for which its process had last been granted the lease.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from tests.support.oracle_case import NEVER, Case
from tests.support.oracle_evidence import Command, Evidence, Gone, Journal, Json, Violation
from tests.support.oracle_story import records_of

Accepts = Callable[[Case, Command], bool]
"""Whether a conversation is what a command was answered about."""
_UNKNOWN: Final = "unknown_conversation"
_MANAGING: Final = frozenset({"rename", "archive", "delete"})


def lives_of(name: str, evidence: Evidence, *, accepts: Accepts) -> list[Case]:
    """Every conversation of an id, in order, with its share of the evidence."""
    gone = [entry for entry in evidence.gone if entry.journal.conversation == name]
    journal = next((journal for journal in evidence.journals if journal.conversation == name), None)
    lives = [Case(entry.journal, evidence, gone=entry) for entry in gone]
    lives.append(Case(journal or _nothing(name), evidence))
    if gone:
        _Shares(lives, gone).divide(accepts)
    return lives


def judge_wholes(evidence: Evidence, lives: list[Case]) -> Iterator[Violation]:
    """What was taken away is gone, and nothing more is told of it."""
    last = lives[-1]
    for case in lives:
        if case.gone is not None and case.gone.left:
            yield case.broken("left_behind", f"deleted as of moment {case.gone.moment}, left are {case.gone.left}")
        yield from (case.broken("after_delete", fact) for fact in case.told_after)
    epochs = [case.journal.epoch for case in lives if case.journal.rows]
    if any(one >= other for one, other in pairwise(epochs)):
        yield last.broken("epoch_reused", f"its lives have the epochs {epochs}")
    there = [(case.durable(1), case.gone.moment if case.gone else NEVER) for case in lives if case.journal.rows]
    for command in evidence.commands:
        if command.conversation == last.conversation and command.answered and command.kind in _MANAGING:
            yield from _existence(last, command, there)
    for record in last.story.records:
        if (handle := record.get("handle") or record.get("bundle")) and handle not in evidence.blobs:
            yield last.broken("blob_lost", f"record {record['seq']} names {handle}, which is not kept")


def judge_fork(case: Case) -> Iterator[Violation]:
    """It begins with what the other conversation held before a turn took the message, and with nothing more."""
    place, forked = next(
        (place, record) for place, record in enumerate(case.story.records) if record["kind"] == "conversation_forked"
    )
    copied = case.story.records[:place]
    sources = [*(entry.journal for entry in case.evidence.gone), *case.evidence.journals]
    found = [records_of(journal.rows) for journal in sources if journal.conversation == forked["source"]]
    if not any(_is_beginning(copied, records, before=forked["before"]) for records in found):
        yield case.broken("fork_differs", f"{place} records are not what stood before {forked['before']}")
    if not case.story.at_rest[place + 1]:
        yield case.broken("fork_differs", "something is left to do in it")


def _is_beginning(copied: list[Json], records: list[Json], *, before: str) -> bool:
    rest = records[len(copied) :]
    if not rest or copied != records[: len(copied)] or rest[0]["kind"] != "turn_prepared":
        return False
    number = rest[0]["turn"]
    own = (record for record in rest if record.get("turn") == number)
    return any(before in (*record.get("joined", ()), *_taken(record)) for record in own)


def _taken(record: Json) -> list[str]:
    taken: list[str] = record["messages"] if record["kind"] == "turn_prepared" else []
    return taken


def _existence(case: Case, command: Command, there: list[tuple[int, int]]) -> Iterator[Violation]:
    """Unknown is what is not there, and what was deleted is not there."""
    what = f"{command.kind} to {command.life} at {command.posted_s:.3f} s"
    was_there = any(begun < command.moment and command.answered < ended for begun, ended in there)
    if command.kind == "delete" and not command.error and was_there:
        yield case.broken("delete_unheard", f"{what} was answered, and the conversation was there all the time")
    held = [grant for grant in case.grants if grant.moment < command.answered]
    # Whoever lost the lease without knowing may answer of what was before.
    if command.error == _UNKNOWN and was_there and held and held[-1].life == command.life:
        yield case.broken("unknown_though_there", f"{what} was answered as unknown")
    was_ever_there = any(begun <= command.answered and command.moment <= ended for begun, ended in there)
    if not command.error and command.kind != "delete" and not was_ever_there:
        yield case.broken("told_of_nothing", f"{what} was done, and no such conversation was there")


class _Shares:
    """Deals out what was noted under one id."""

    def __init__(self, lives: list[Case], gone: list[Gone]) -> None:
        self._lives = lives
        self._gone = gone

    def divide(self, accepts: Accepts) -> None:
        first = self._lives[0]
        commands, watches, commits = first.commands, first.watches, first.commits
        noted = {
            name: list[Any](getattr(first, name))
            for name in ("snapshots", "published", "deltas", "model_calls", "tool_steps", "side_calls")
        }
        for place, case in enumerate(self._lives):
            case.commits = [commit for commit in commits if self._at(commit.moment) == place]
            is_last = case is self._lives[-1]
            case.watches = [
                watch
                for watch in watches
                if (watch.epoch == case.journal.epoch if watch.epoch else is_last and watch.is_last)
            ]
            case.commands = []
            for name in noted:
                setattr(case, name, [])
        for name, entries in noted.items():
            for entry in entries:
                self._deal(name, entry)
        for command in commands:
            self._answered(command, accepts)

    def _at(self, moment: int) -> int:
        return sum(entry.moment < moment for entry in self._gone)

    def _deal(self, name: str, entry: Any) -> None:
        """To the conversation for which its process was granted the lease last."""
        granted = [
            grant.moment for grant in self._lives[0].grants if grant.life == entry.life and grant.moment < entry.moment
        ]
        is_job = name == "side_calls"  # which any process may do
        place = self._at(granted[-1] if granted and not is_job else entry.moment)
        case = self._lives[place]
        if case.gone and case.gone.life == entry.life and case.gone.moment < entry.moment:
            case.told_after.append(f"{entry.life} deleted it, and then: {name} {str(entry)[:200]}")
        else:
            getattr(case, name).append(entry)

    def _answered(self, command: Command, accepts: Accepts) -> None:
        """To those that were there while it was asked; an answer speaks of one of them."""
        first, last = self._at(command.moment), self._at(command.answered or NEVER)
        asked = self._lives[first : last + 1]
        if command.answered and not command.error:
            asked = [next((case for case in asked if accepts(case, command)), asked[-1])]
        for case in asked:
            case.commands.append(command)


def _nothing(name: str) -> Journal:
    return Journal(conversation=name, rows=[], is_due=False, quarantine="", receipts={}, epoch=0)
