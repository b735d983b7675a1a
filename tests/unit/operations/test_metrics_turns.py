"""What is counted of the records that become durable."""

import msgspec
import pytest

from tests.support.scrape import Numbers
from torpor.conversation.steps import Rest
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import UNKNOWN_TOOL, KnownTools
from torpor.operations.metrics_turns import TurnNumbers
from torpor.records.attachments import Why
from torpor.records.blocks import text_block
from torpor.records.ids import CallId, ConversationKey, MessageId
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    LiveContextFailed,
    LiveContextReplaced,
    MessageReceived,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import FoldReason, Outcome

KEY, OTHER = ConversationKey("acme", "ann", "c_1"), ConversationKey("acme", "bob", "c_1")
NOTE = text_block("note")
BEGUN = TurnPrepared(at_us=1_000_000, turn=1, messages=(MessageId("m1"),))


class Book:
    def __init__(self) -> None:
        self.metrics = Metrics()
        tools = KnownTools()
        tools.add("file_it")
        self.turns = TurnNumbers(self.metrics, tools=tools)

    def commit(self, *records: JournalRecord, key: ConversationKey = KEY) -> None:
        self.turns.committed(key, records, agent="clerk")

    async def numbers(self) -> Numbers:
        return Numbers((await self.metrics.page()).body.decode())


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        (TurnFinished(at_us=3_500_000, turn=1), "finished"),
        (TurnCancelled(at_us=3_500_000, turn=1, reason="client", note=NOTE), "cancelled"),
        (TurnFailed(at_us=3_500_000, turn=1, code="crashed", detail="x", note=NOTE), "failed"),
        (TurnRefused(at_us=3_500_000, turn=1, detail="x", note=NOTE), "refused"),
    ],
)
async def test_turn_is_counted_by_its_end_and_timed_by_its_own_records(record: JournalRecord, outcome: str) -> None:
    book = Book()
    book.commit(MessageReceived(message_id=MessageId("m1"), principal="ann", blocks=(NOTE,)), BEGUN)
    book.commit(record)
    told = await book.numbers()

    assert told.value("torpor_messages_total", agent="clerk") == 1
    assert told.value("torpor_turns_started_total", agent="clerk") == 1
    assert told.by("torpor_turns_ended_total", "agent", "outcome") == {("clerk", outcome): 1}
    assert told.value("torpor_turn_seconds_sum", agent="clerk") == 2.5
    assert told.by("torpor_turn_failures_total", "code") == ({("crashed",): 1} if outcome == "failed" else {})


async def test_length_of_a_turn_that_was_not_seen_whole_is_not_guessed_at() -> None:
    book = Book()
    book.commit(TurnFinished(at_us=3_500_000, turn=7))
    book.commit(BEGUN, key=OTHER)
    book.turns.interrupted(OTHER)
    book.commit(TurnFinished(at_us=9_000_000, turn=1), key=OTHER)
    told = await book.numbers()

    assert told.value("torpor_turns_ended_total", agent="clerk", outcome="finished") == 2
    assert told.by("torpor_turn_seconds_count", "agent") == {}


async def test_clock_that_was_set_back_makes_no_turn_shorter_than_nothing() -> None:
    book = Book()
    book.commit(BEGUN, TurnFinished(at_us=5, turn=1))

    assert (await book.numbers()).value("torpor_turn_seconds_sum", agent="clerk") == 0


async def test_names_that_a_model_made_up_become_no_label() -> None:
    book = Book()
    finished = ToolFinished(turn=1, call_id=CallId("a"), name="file_it", outcome=Outcome.SUCCEEDED, block=NOTE)
    book.commit(finished, msgspec.structs.replace(finished, name="rm -rf", outcome=Outcome.FAILED))

    assert (await book.numbers()).by("torpor_tool_calls_total", "tool", "outcome") == {
        ("file_it", "succeeded"): 1,
        ("unknown", "failed"): 1,
    }


def test_names_that_a_server_makes_up_again_and_again_become_one_label() -> None:
    tools = KnownTools()
    for number in range(300):
        tools.add(f"wild__made_up_{number}", server="wild")
        tools.add(f"own_{number}")
    tools.add("tame__read", server="tame")

    labels = {tools.label(f"wild__made_up_{number}") for number in range(300)}
    assert len(labels) == 101
    assert UNKNOWN_TOOL in labels
    assert [tools.label(name) for name in ("tame__read", "own_299")] == ["tame__read", "own_299"]


async def test_attachments_are_counted_by_why_no_model_is_shown_them_any_more() -> None:
    book = Book()
    gone = ContextReplaced(
        reason=FoldReason.WITHDRAWN, generation=0, kept_from=1, head=(), link="", withdrawn={0: NOTE, 2: NOTE}
    )
    book.commit(*(msgspec.structs.replace(gone, why=why) for why in (Why.DAMAGED, Why.MISSING, Why.DAMAGED)))

    assert (await book.numbers()).by("torpor_attachments_withdrawn_total", "reason") == {
        ("damaged",): 4,
        ("missing",): 2,
    }


async def test_work_beside_turns_is_counted_by_how_it_ended() -> None:
    book = Book()
    book.commit(
        ContextReplaced(reason=FoldReason.SUMMARY, generation=1, kept_from=2, head=(), link=""),
        CompactionFailed(code="deadline", detail="", left_alone_until_us=60_000_000),
        LiveContextReplaced(job="live:1", words="calm", block=NOTE, messages=2),
        LiveContextFailed(job="live:2", code="model_overloaded", detail=""),
    )
    told = await book.numbers()

    assert told.by("torpor_compactions_total", "outcome") == {("summary",): 1, ("deadline",): 1}
    assert told.value("torpor_compaction_pauses_total") == 1
    assert told.by("torpor_live_contexts_total", "outcome") == {("replaced",): 1, ("model_overloaded",): 1}


async def test_turns_of_sub_agents_are_no_turns_of_conversations_but_their_tool_calls_count() -> None:
    book = Book()
    child = KEY.child("x")
    finished = ToolFinished(turn=1, call_id=CallId("a"), name="file_it", outcome=Outcome.SUCCEEDED, block=NOTE)
    message = MessageReceived(message_id=MessageId("m1"), principal="ann", blocks=(NOTE,))
    book.commit(message, BEGUN, finished, TurnFinished(at_us=3_500_000, turn=1), key=child)
    told = await book.numbers()

    for name in ("torpor_messages_total", "torpor_turns_started_total", "torpor_turns_ended_total"):
        assert told.by(name, "agent") == {}
    assert told.value("torpor_events_committed_total") == 0
    assert told.by("torpor_tool_calls_total", "tool", "outcome") == {("file_it", "succeeded"): 1}


def test_steps_are_not_held_up() -> None:
    with Book().turns.step(KEY, Rest(), agent="clerk") as nothing:
        assert nothing is None
