"""What is counted of sub-agents, from the records of whom they work for."""

import pytest

from tests.support.scrape import Numbers
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import KnownTools
from torpor.operations.metrics_turns import TurnNumbers
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import JournalRecord, SubagentFinished, SubagentStarted
from torpor.records.terms import Outcome, Usage

KEY, OTHER = ConversationKey("acme", "ann", "c_1"), ConversationKey("acme", "ann", "c_10")
USAGE = Usage(input_tokens=10, cache_read_input_tokens=20, cache_creation_input_tokens=30, output_tokens=4)


def started(child: str, name: str = "scout") -> SubagentStarted:
    return SubagentStarted(turn=1, call_id=CallId("a"), name=name, child=child)


def finished(child: str, name: str = "scout", *, code: str = "", usage: Usage = USAGE) -> SubagentFinished:
    outcome = Outcome.FAILED if code else Outcome.SUCCEEDED
    return SubagentFinished(
        turn=1, call_id=CallId("a"), name=name, child=child, outcome=outcome, code=code, usage=usage
    )


class Book:
    def __init__(self) -> None:
        self.metrics = Metrics()
        tools = KnownTools()
        tools.add("scout")
        self.turns = TurnNumbers(self.metrics, tools=tools)

    def commit(self, *records: JournalRecord, key: ConversationKey = KEY) -> None:
        self.turns.committed(key, records, agent="clerk")

    async def numbers(self) -> Numbers:
        return Numbers((await self.metrics.page()).body.decode())

    async def at_work(self) -> float | None:
        return (await self.numbers()).value("torpor_subagents_at_work")


async def test_those_at_work_are_those_that_began_and_did_not_end() -> None:
    book = Book()
    assert await book.at_work() == 0
    book.commit(started("x"), started("y"))
    book.commit(started("z"), key=OTHER)
    book.commit(started("below"), key=KEY.child("x"))
    assert await book.at_work() == 4
    book.commit(finished("x"))
    book.commit(finished("below"), key=KEY.child("x"))
    assert await book.at_work() == 2
    book.commit(finished("y"))
    book.commit(finished("z"), key=OTHER)
    assert await book.at_work() == 0


async def test_with_an_actor_ends_what_is_at_work_for_it_at_any_depth_and_for_nobody_else() -> None:
    book = Book()
    book.commit(started("x"))
    book.commit(started("below"), key=KEY.child("x"))
    book.commit(started("z"), key=OTHER)
    book.turns.interrupted(KEY)
    assert await book.at_work() == 1


async def test_one_of_a_life_before_counts_as_ended_and_as_nothing_else() -> None:
    book = Book()
    book.commit(finished("gone", code="lost"))
    assert await book.at_work() == 0
    assert (await book.numbers()).by("torpor_subagents_finished_total", "subagent", "code") == {("scout", "lost"): 1}


@pytest.mark.parametrize(("code", "label"), [("", "answered"), ("steps", "steps"), ("failed", "failed")])
async def test_they_are_counted_by_name_and_by_how_they_ended(code: str, label: str) -> None:
    book = Book()
    book.commit(started("x"), finished("x", code=code), started("y", "made up"), finished("y", "made up", code=code))
    assert (await book.numbers()).by("torpor_subagents_finished_total", "subagent", "code") == {
        ("scout", label): 1,
        ("unknown", label): 1,
    }


async def test_tokens_of_those_below_are_counted_once() -> None:
    book = Book()
    book.commit(started("x"))
    book.commit(started("below"), finished("below"), key=KEY.child("x"))
    book.commit(finished("x"))
    assert (await book.numbers()).by("torpor_subagents_tokens_total", "subagent", "kind") == {
        ("scout", "input"): 10,
        ("scout", "cache_read"): 20,
        ("scout", "cache_write"): 30,
        ("scout", "output"): 4,
    }
