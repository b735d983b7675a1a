"""Live contexts: ordered when they are due, made by jobs that are never lost, told as they were said, and sent once."""

import re
from collections.abc import Iterator
from html import unescape

from tests.support.oracle_case import Case
from tests.support.oracle_evidence import Json, LiveRules, Violation
from tests.support.oracle_offers import was_off, was_on

FLAG = "live_context"
_BLOCK = re.compile(r'<live_context note="[^"<>]*">([^<>]*)</live_context>')
_SPEAKER = re.compile(r"^(?:user|assistant): ", re.MULTILINE)


def judge_live(case: Case) -> Iterator[Violation]:
    if case.evidence.live is None:
        return
    yield from _Walk(case, case.evidence.live).violations()
    yield from _read(case, case.evidence.live)


class _Walk:
    """The journal from its first record to its last."""

    def __init__(self, case: Case, rules: LiveRules) -> None:
        self._case = case
        self._rules = rules
        self._said = 0
        """User messages that turns took, and replies that ended them."""
        self._orders = 0
        self._out = ""
        """The job of the last order, until something comes of it."""
        self._tried = 0
        self._has_failed = False
        self._made = 0
        self._current = 0
        """Seq of the record that brought what holds now."""

    def violations(self) -> Iterator[Violation]:
        for record in self._case.story.records:
            step = getattr(self, f"_{record['kind']}", None)
            if step is not None:
                yield from step(record)
        is_left = any(job.conversation == self._case.conversation for job in self._case.evidence.jobs_left)
        if self._out and not is_left and not self._case.gone:  # a conversation has one job for all its orders
            yield self._case.broken("job_lost", f"nothing came of {self._out}, and it is in no store")

    def _broken(self, kind: str, record: Json, fact: str) -> Violation:
        return self._case.broken(kind, f"record {record['seq']}: {fact}")

    def _turn_prepared(self, record: Json) -> Iterator[Violation]:
        self._said += len(record["messages"])
        asked = [command.moment for command in self._case.commands if command.message_id in record["messages"]]
        since, durable = min(asked, default=0), self._case.durable(record["seq"])
        named = record.get("live", 0)
        if named not in {0, self._current}:
            yield self._broken("live_stale", record, f"it names record {named}, what holds is {self._current}")
        elif named and was_off(self._case, FLAG, since, durable):
            yield self._broken("live_off", record, "live contexts were off all the time")
        elif not named and self._current and was_on(self._case, FLAG, since, durable):
            yield self._broken("live_stale", record, f"it names none, what holds is {self._current}")

    def _model_requested(self, record: Json) -> Iterator[Violation]:
        self._said += len(record.get("joined", []))
        yield from ()

    def _turn_finished(self, record: Json) -> Iterator[Violation]:
        self._said += 1
        following = self._case.story.records[record["seq"] : record["seq"] + 1]
        is_ordered = bool(following) and following[0]["kind"] == "live_context_ordered"
        turn = self._case.story.turns[record["turn"]]
        since, durable = self._case.durable(turn.begin_seq), self._case.durable(record["seq"])
        if self._is_due() and not is_ordered and was_on(self._case, FLAG, since, durable):
            yield self._broken("live_not_ordered", record, f"{self._said} messages were said, made after {self._made}")

    def _is_due(self) -> bool:
        """By what was said alone; age may bring it sooner."""
        waits = self._rules.every_messages if self._out else self._rules.retry_messages if self._has_failed else 0
        if self._said - self._tried < waits:
            return False
        if not self._current:
            return self._said >= self._rules.first_messages
        return self._said - self._made >= self._rules.every_messages

    def _is_awaited(self) -> bool:
        """Whether an order is out that answers any further one."""
        return bool(self._out) and self._said - self._tried < self._rules.every_messages

    def _live_context_ordered(self, record: Json) -> Iterator[Violation]:
        reason = record["reason"]
        self._orders += 1
        if record["job"] != f"live-{self._orders}" or record["messages"] != self._said:
            fact = f"{record['job']} after {record['messages']} messages is the {self._orders}. after {self._said}"
            yield self._broken("live_ordered", record, fact)
        durable = self._case.durable(record["seq"])
        by_hand = any(command.kind == "refresh" and command.moment < durable for command in self._case.commands)
        is_sound = {
            "first": self._is_due() and not self._current,
            "messages": self._is_due() and bool(self._current),
            "age": bool(self._current),
            "hand": by_hand and not self._is_awaited(),
        }
        if not is_sound[reason]:
            yield self._broken("live_ordered", record, f"it is not due by {reason}")
        self._out, self._tried = record["job"], self._said

    def _live_context_replaced(self, record: Json) -> Iterator[Violation]:
        yield from self._told(record)
        words = record["words"].split()
        if len(words) > self._rules.words_max:
            yield self._broken("live_words", record, f"it has {len(words)} words, {self._rules.words_max} are allowed")
        found = _BLOCK.fullmatch(record["block"]["text"])
        if found is None or unescape(found[1]) != record["words"]:
            yield self._broken("live_words", record, f"{record['block']} does not say {record['words']!r}")
        answers = [call.answer.split() for call in self._case.side_calls if call.call == record["job"] and call.ended]
        if words not in [answer[: self._rules.words_max] for answer in answers]:
            yield self._broken("live_words", record, f"{record['words']!r} is in none of {answers}")
        self._current, self._made, self._tried = record["seq"], record["messages"], record["messages"]
        self._out, self._has_failed = "", False

    def _live_context_failed(self, record: Json) -> Iterator[Violation]:
        yield from self._told(record)
        self._out, self._has_failed = "", True

    def _told(self, record: Json) -> Iterator[Violation]:
        if record["job"] != self._out:
            yield self._broken("live_untold", record, f"{record['job']} is told, out is {self._out!r}")


def _read(case: Case, rules: LiveRules) -> Iterator[Violation]:
    """Only the latest messages are read, and only of this conversation."""
    for call in case.side_calls:
        if call.purpose != "live":
            continue
        if (lines := len(_SPEAKER.findall(call.question))) > rules.read_messages:
            yield case.broken("live_reads", f"{call.call} read {lines} messages, {rules.read_messages} are allowed")
        others = set(re.findall(r"\[(c\d+):", call.question)) - {case.conversation}
        if others:
            yield case.broken("live_reads", f"{call.call} read of {sorted(others)}")
