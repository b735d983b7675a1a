"""How a conversation stands in lists: its title, and whether it was put away. Told by records, answered in time."""

from collections.abc import Iterator
from itertools import pairwise

from tests.support.oracle_case import NEVER, Case
from tests.support.oracle_evidence import Command, Violation

_TITLED = frozenset({"conversation_created", "conversation_renamed"})
_ARCHIVED = {"conversation_archived": True, "conversation_unarchived": False, "conversation_forked": False}


def judge_lists(case: Case) -> Iterator[Violation]:
    yield from _row(case)
    for command in case.commands:
        yield from listed(case, command)


def listed(case: Case, command: Command) -> Iterator[Violation]:
    """What an answer speaks of was durable when it was given."""
    if not command.answered or command.error:
        return
    if command.kind == "rename" and not _is_titled(case, command):
        fact = f"{command.text!r} was acknowledged and is in no record that was durable then"
        yield case.broken("ack_before_commit", fact)
    if command.kind == "archive" and not _was_so(case, command):
        fact = f"at {command.posted_s:.3f} s it was asked to be {command.text}, and it never was until the answer"
        yield case.broken("ack_before_commit", fact)


def _row(case: Case) -> Iterator[Violation]:
    """What lists show is what the journal says."""
    titles = [record.get("title", "") for record in case.story.records if record["kind"] in _TITLED]
    if case.journal.title is None or not titles:
        return
    shown = (case.journal.title, case.journal.is_archived)
    if shown != (told := (titles[-1], case.story.is_archived)):
        yield case.broken("row", f"lists show {shown}, the journal says {told}")


def _is_titled(case: Case, command: Command) -> bool:
    """Whether a record that was durable by the answer brings the title; no two commands ask for the same one."""
    named = (record for record in case.story.records if record["kind"] == "conversation_renamed")
    return any(record["title"] == command.text and case.durable(record["seq"]) <= command.answered for record in named)


def _was_so(case: Case, command: Command) -> bool:
    """Whether it was, at any time between question and answer, as the command asks."""
    told = [(case.durable(r["seq"]), _ARCHIVED[r["kind"]]) for r in case.story.records if r["kind"] in _ARCHIVED]
    stood = [(0, False), *told, (NEVER, False)]
    wanted = command.text == "archived"
    return any(
        state is wanted and begun <= command.answered and ended >= command.moment
        for (begun, state), (ended, _) in pairwise(stood)
    )
