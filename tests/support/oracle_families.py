"""Conversations and the sub-agents that worked for them, however deep: who asked whom, until when, and what came of it.

A sub-agent has a journal of its own, and is told by its name: that of whom it works for, and its own behind it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from tests.support.oracle_answers import judge_answer
from tests.support.oracle_case import CHILD_MARK, NEVER, Case
from tests.support.oracle_effects import judge_reads
from tests.support.oracle_evidence import Evidence, Json, Violation
from tests.support.oracle_models import judge_models

LOST = "lost"
_UNAWARE_CALLS = 2
"""Of the model, by a sub-agent whose life has lost the lease and does not know it yet."""
_SPENDING = frozenset({"model_replied", "context_replaced", "compaction_failed"})


class Child:
    """One sub-agent, and who asked for it."""

    def __init__(self, case: Case, *, above: Case, started: Json, parent: "Child | None") -> None:
        """Args: above: whom it works for.  parent: the same, where that is a sub-agent."""
        self.case = case
        self.above = above
        self.started = started
        self.parent = parent
        self.finished: Json = next(
            (record for record in above.story.children.ended if record["child"] == started["child"]), {}
        )

    @property
    def code(self) -> str:
        code: str = self.finished.get("code", "")
        return code

    @property
    def is_whole(self) -> bool:
        """Whether all that it did is in its journal, as its end says."""
        return bool(self.finished.get("link")) and self.code != LOST

    @property
    def ended(self) -> int:
        """When it, or one for which it worked, was on record as ended."""
        own = self.above.durable(self.finished.get("seq", 0))
        return min(own, self.parent.ended if self.parent else NEVER)

    @property
    def stopped(self) -> int:
        """When nobody wanted anything of it any more."""
        story = self.above.story
        call, turn = story.calls.get(self.started["call_id"]), story.turns.get(self.started["turn"])
        own = min(self.above.durable(call.finished_seq if call else 0), self.above.durable(turn.end_seq if turn else 0))
        return min(own, self.ended, self.parent.stopped if self.parent else NEVER)

    def broken(self, kind: str, fact: str) -> Violation:
        return self.case.broken(kind, fact)


class Families:
    """All of a run."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._children: dict[str, Child] = {}
        self._cases: dict[str, Case] = {}
        """Of sub-agents, by name."""
        for gone in evidence.gone:
            for journal in gone.below:
                self._cases[journal.conversation] = Case(journal, evidence, gone=gone)
        for journal in evidence.journals:
            if CHILD_MARK in journal.conversation:
                self._cases[journal.conversation] = Case(journal, evidence)
        self._tops: list[Case] = []

    def add(self, lives: Iterable[Case]) -> None:
        """Conversations that are no sub-agent's."""
        self._tops.extend(lives)

    def violations(self) -> Iterator[Violation]:
        if self._evidence.children is None:
            return
        for case in (*self._tops, *(self._cases[name] for name in sorted(self._cases, key=_depth))):
            self._meet(case)
        committed = {commit.conversation for commit in self._evidence.commits if CHILD_MARK in commit.conversation}
        for name in sorted(committed - set(self._cases)):
            yield Violation("child_gone", name, "what it wrote is in no journal")
        for name, case in self._cases.items():
            yield from case.story.violations
            yield from judge_models(case)
            yield from judge_reads(case)
            yield from _store(case)
            if (child := self._children.get(name)) is None:
                yield case.broken("child_unasked", "nobody's journal says that it began")
                continue
            yield from _times(child)
            yield from self._spent(child)
            yield from self._bounds(child)
            if child.is_whole:
                yield from (case.broken(kind, fact) for kind, fact in case.story.children.left())
        for case in (*self._tops, *self._cases.values()):
            yield from self._delivered(case)
        for case in self._tops:
            yield from self._of_turns(case)

    def _meet(self, case: Case) -> None:
        for record in case.story.records[case.story.copied_seq :]:
            if record["kind"] == "subagent_started":
                name = f"{case.conversation}{CHILD_MARK}{record['child']}"
                if name in self._cases:
                    parent = self._children.get(case.conversation)
                    self._children[name] = Child(self._cases[name], above=case, started=record, parent=parent)

    def _spent(self, child: Child) -> Iterator[Violation]:
        """What it cost is what its model calls cost, and those below it; what could not be written may add to that."""
        if not child.finished:
            return
        found, is_exact = Counter[str](), child.code == LOST or child.is_whole
        beginning = child.case.conversation + CHILD_MARK
        for name in (other for other in self._cases if f"{other}{CHILD_MARK}".startswith(beginning)):
            for record in self._cases[name].story.records:
                found += Counter(_usage(record))
            own = self._children.get(name)
            is_exact &= child.code == LOST or (own is not None and own.is_whole)
        told = Counter[str](child.finished.get("usage", {}))
        if told != found if is_exact else found - told:
            yield child.broken("child_usage", f"it cost {dict(found)}, told are {dict(told)}")

    def _bounds(self, child: Child) -> Iterator[Violation]:
        rules = self._evidence.children
        assert rules is not None
        story = child.case.story
        if (depth := _depth(child.case.conversation)) > rules.depth_max:
            yield child.broken("child_budget", f"it is {depth} deep, {rules.depth_max} are allowed")
        replies = sum(record["kind"] == "model_replied" for record in story.records)
        if replies > rules.steps_max:
            yield child.broken("child_budget", f"its model replied {replies} times, {rules.steps_max} are allowed")
        if child.is_whole and replies != child.finished.get("rounds", 0):
            yield child.broken("child_differs", f"{child.finished.get('rounds', 0)} rounds are told, it had {replies}")
        spent = 0
        for record in story.records:
            if record["kind"] == "model_requested" and 0 < rules.tokens_max <= spent:
                yield child.broken("child_budget", f"record {record['seq']} asks after {spent} tokens")
            spent += sum(_usage(record).values())

    def _of_turns(self, case: Case) -> Iterator[Violation]:
        """None begins for a turn whose sub-agents have used up what they may; a crash may forget what came before."""
        assert self._evidence.children is not None
        tokens_max, spent = self._evidence.children.turn_tokens_max, 0
        for record in case.story.records[case.story.copied_seq :]:
            match record["kind"]:
                case "turn_prepared" | "attempt_started":
                    spent = 0
                case "subagent_finished":
                    spent += sum(record.get("usage", {}).values())
                case "subagent_started" if 0 < tokens_max <= spent:
                    yield case.broken("child_budget", f"record {record['seq']} begins one after {spent} tokens")
                case _:
                    pass

    def _delivered(self, case: Case) -> Iterator[Violation]:
        """A call that succeeded tells what exactly one sub-agent of its own came to, and no other call tells that."""
        rules = self._evidence.children
        assert rules is not None
        told: dict[str, str] = {}
        begun = {record["call_id"] for record in case.story.records if record["kind"] == "subagent_started"}
        for call in case.story.calls.values():
            if call.name not in rules.results or call.outcome != "succeeded" or call.turn not in case.story.turns:
                continue
            if case.story.calls[call.id].finished_seq <= case.story.copied_seq:
                continue
            own = _last_attempt(
                case,
                call.turn,
                [
                    record
                    for record in case.story.children.ended
                    if record["call_id"] == call.id and record["outcome"] == "succeeded"
                ],
            )
            if len(own) != 1 or call.id not in begun:
                fact = f"call {call.id} tells {call.text!r}, of {len(own)} sub-agents that came to an end"
                yield case.broken("bundle_twice" if call.text in told.values() or own else "answer_invented", fact)
            elif (child := self._children.get(f"{case.conversation}{CHILD_MARK}{own[0]['child']}")) is not None:
                answer = judge_answer(child.case, own[0], told=call.text, rules=rules)
                yield from (case.broken(kind, f"call {call.id}: {fact}") for kind, fact in answer)
            told[call.id] = call.text


def _last_attempt(case: Case, turn: int, ended: list[Json]) -> list[Json]:
    """Those that ended since the calls of their round were begun anew: what came before is discarded."""
    begun = [seq for (step, _, _), seq in case.story.turns[turn].attempts.items() if step == "run_tools"]
    since = max((seq for seq in begun if ended and seq < ended[-1]["seq"]), default=0)
    return [record for record in ended if record["seq"] > since]


def _depth(name: str) -> int:
    return name.count(CHILD_MARK)


def _store(case: Case) -> Iterator[Violation]:
    """One life writes it, under the fence of the conversation that it works for."""
    rows = [(row.first_seq, row.last_seq) for row in case.journal.rows]
    committed = [(commit.first_seq, commit.last_seq) for commit in case.commits]
    if rows != committed:
        yield case.broken("numbers", f"rows {rows[-3:]} are not what was committed, {committed[-3:]}")
    for commit in case.commits:
        if (commit.life, commit.fence) != (case.commits[0].life, case.commits[0].fence):
            yield case.broken("child_moved", f"{commit.life} wrote {commit.first_seq} under fence {commit.fence}")
        if case.evidence.has_leases and commit.fence != (granted := case.fence_at(commit.moment)):
            yield case.broken("zombie_write", f"fence {commit.fence} wrote {commit.first_seq}, granted is {granted}")


def _times(child: Child) -> Iterator[Violation]:
    """It begins after it is on record, and ends with what it was for."""
    case = child.case
    if case.durable(1) < child.above.durable(child.started["seq"]):
        yield child.broken("child_unasked", "it wrote before it was on record that it was begun")
    for commit in case.commits:
        if commit.moment > child.ended:
            yield child.broken("zombie_write", f"{commit.life} wrote {commit.first_seq} after it had ended")
    stopped = child.stopped
    for call in case.model_calls:
        if call.is_holder and call.moment > stopped:
            yield child.broken("child_outlives", f"{call.life} asks {call.call} after what it was for had ended")
    for step in case.tool_steps:
        if step.what == "started" and step.is_holder and step.moment > stopped:
            yield child.broken("child_outlives", f"{step.life} runs {step.tool} after what it was for had ended")
    unaware = Counter(call.life for call in case.model_calls if not call.is_holder)
    if any(calls > _UNAWARE_CALLS for calls in unaware.values()):
        yield child.broken("child_outlives", f"asked without the lease: {dict(unaware)}")
    if child.is_whole:
        head = case.story.records[-1]["seq"]
        if (head, case.story.link) != (child.finished.get("child_seq", 0), child.finished["link"]):
            yield child.broken("child_differs", f"it ended at record {head} with {case.story.link}: {child.finished}")
        if not case.story.at_rest[-1]:
            yield child.broken("child_differs", "it is told as whole, and something is left to do")


def _usage(record: Json) -> dict[str, int]:
    usage: dict[str, int] = record.get("usage", {}) if record["kind"] in _SPENDING else {}
    return usage
