"""Judges a run by what it left behind: ``judge(evidence)`` gives every broken promise.

It sees JSON rows, the tools' own ledger, the model's own log and the clients' logs, and imports nothing of the engine.
Promises about one conversation are judged one conversation at a time, over the ``Case`` that this module builds.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.support.oracle_case import CHILD_MARK, Case
from tests.support.oracle_clients import answered, has_received, judge_clients
from tests.support.oracle_effects import judge_effects
from tests.support.oracle_evidence import Command, Evidence, Violation
from tests.support.oracle_families import Families
from tests.support.oracle_files import judge_files
from tests.support.oracle_folds import judge_folds
from tests.support.oracle_lists import judge_lists, listed
from tests.support.oracle_live import judge_live
from tests.support.oracle_models import judge_models
from tests.support.oracle_offers import judge_offers
from tests.support.oracle_wholes import judge_fork, judge_wholes, lives_of


def judge(evidence: Evidence) -> list[Violation]:
    """Every broken promise; empty for a sound run that has come to rest."""
    found = [Violation("no_answer", "clients", fact) for fact in evidence.unanswered]
    names = [entry.journal.conversation for entry in evidence.gone]
    names += [journal.conversation for journal in evidence.journals]
    names += [entry.conversation for entry in evidence.commits]
    families = Families(evidence)
    for name in dict.fromkeys(name for name in names if CHILD_MARK not in name):
        lives = lives_of(name, evidence, accepts=_accepts)
        families.add(lives)
        found.extend(judge_wholes(evidence, lives))
        for case in lives:
            found.extend(case.story.violations)
            found.extend(judge_store(case))
            found.extend(judge_clients(case))
            found.extend(judge_lists(case))
            found.extend(judge_fork(case) if case.story.copied_seq else _judge_work(case))
    found.extend(families.violations())
    return found


def _judge_work(case: Case) -> Iterator[Violation]:
    """Of a conversation whose turns ran in it."""
    yield from judge_models(case)
    yield from judge_files(case)
    yield from judge_effects(case)
    yield from judge_offers(case)
    yield from judge_folds(case)
    yield from judge_live(case)


def _accepts(case: Case, command: Command) -> bool:
    """Whether an answer can speak of this conversation."""
    if command.kind == "send":
        return has_received(case, command)
    return not any((*answered(case, command), *listed(case, command)))


def judge_store(case: Case) -> Iterator[Violation]:
    """Rows, fences, snapshots, due marks, the index, and that the end is an end."""
    rows = [(row.first_seq, row.last_seq) for row in case.journal.rows]
    committed = [(commit.first_seq, commit.last_seq) for commit in case.commits]
    if rows != committed:
        yield case.broken("numbers", f"rows {rows[-3:]} are not what was committed, {committed[-3:]}")
    yield from _bounds(case)
    yield from _fences(case)
    yield from _renewals(case)
    for commit in case.commits:
        at_rest = case.story.at_rest[commit.last_seq] if commit.last_seq < len(case.story.at_rest) else None
        if commit.is_due is at_rest:
            state = "at rest" if at_rest else "not at rest"
            yield case.broken("due_mark", f"{state} after record {commit.last_seq}, marked due: {commit.is_due}")
    if case.journal.quarantine and not case.gone:
        yield case.broken("quarantined", case.journal.quarantine)
    if not case.gone and (case.journal.is_due or not case.story.at_rest[-1]):
        yield case.broken("not_at_rest", f"the run is over and its last record is {case.story.records[-1]['kind']}")
    for kind, fact in case.story.children.left() if not case.gone else ():
        yield case.broken(kind, fact)
    events = {id_: record["event"] for id_, record in case.story.received.items()}
    index = {id_: receipt["event"] for id_, receipt in case.journal.receipts.items()}
    if events != index:
        yield case.broken("index", f"receipts {sorted(index.items() ^ events.items())} differ from the journal")


def _bounds(case: Case) -> Iterator[Violation]:
    """Nothing grows beyond its bound."""
    evidence, story = case.evidence, case.story
    if story.queue_max > evidence.queue_max:
        yield case.broken("unbounded", f"{story.queue_max} messages waited, allowed are {evidence.queue_max}")
    for turn in story.turns.values():
        if turn.round > evidence.rounds_max:
            yield case.broken(
                "unbounded", f"turn {turn.number} has {turn.round} rounds, {evidence.rounds_max} are allowed"
            )
        if (attempt := max((number for _, _, number in turn.attempts), default=1)) > evidence.attempts_max:
            yield case.broken("unbounded", f"turn {turn.number} made attempt {attempt} at one step")
        if turn.failures > evidence.retries_max:
            yield case.broken("unbounded", f"turn {turn.number} asked again after {turn.failures} failures")


def _fences(case: Case) -> Iterator[Violation]:
    """One writer per fence: nothing is taken from a fence older than the last one granted."""
    if case.evidence.has_leases and any(a.fence >= b.fence for a, b in pairwise(case.grants)):
        yield case.broken("fence_reused", f"fences were granted as {[grant.fence for grant in case.grants]}")
    newest = 0
    for commit in case.commits:
        if commit.fence < newest:
            yield case.broken("stale_append", f"fence {commit.fence} appended {commit.first_seq} after {newest}")
        newest = max(newest, commit.fence)
        if case.evidence.has_leases and commit.fence != (granted := case.fence_at(commit.moment)):
            yield case.broken("stale_append", f"fence {commit.fence} appended {commit.first_seq}, granted is {granted}")
    for put in case.snapshots:
        if put.fence != (granted := case.fence_at(put.moment)):
            yield case.broken("stale_snapshot", f"fence {put.fence} put a snapshot at {put.seq}, granted is {granted}")
        if put.seq > case.head_at(put.moment):
            yield case.broken("stale_snapshot", f"a snapshot at {put.seq} is past head {case.head_at(put.moment)}")


def _renewals(case: Case) -> Iterator[Violation]:
    """A life renews the lease that it holds, not one that it had before: it would believe to have lost the other."""
    for renewal in (entry for entry in case.evidence.renewed_in_vain if entry.conversation == case.conversation):
        incarnation = case.incarnation_at(renewal.moment)
        newest = case.grants[incarnation - 1] if incarnation else None
        if newest is None or newest.life != renewal.life:
            continue
        was_released = any(newest.moment < entry.moment < renewal.moment for entry in case.released)
        if was_released or newest.fence != renewal.fence:
            fact = f"{renewal.life} renewed fence {renewal.fence}, was given {newest.fence}, released: {was_released}"
            yield case.broken("stale_renewal", fact)
