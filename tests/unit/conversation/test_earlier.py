"""Turns are read again from their records, whatever order messages came in and however a turn ended."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.marked import attachment
from torpor.conversation.earlier import READ_EARLIER, Backwards, EarlierTurn, Part, Voice, named_in, turn_of
from torpor.records.attachments import marker_block
from torpor.records.blocks import Block, canonical, text_block, tool_result_block
from torpor.records.context import WorkingContext
from torpor.records.ids import CallId, MessageId
from torpor.records.journal import (
    ContextChanged,
    JournalRecord,
    LateResult,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)
from torpor.records.terms import Outcome

NOTE = text_block("[A note of the engine]")
THINKING = canonical({"type": "thinking", "thinking": "hm", "signature": "s"})


def received(message: str, *blocks: Block) -> MessageReceived:
    return MessageReceived(message_id=MessageId(message), principal="ann", blocks=blocks or (text_block(message),))


def prepared(turn: int, *messages: str, **fields: Any) -> TurnPrepared:
    return TurnPrepared(turn=turn, at_us=turn, messages=tuple(map(MessageId, messages)), **fields)


def requested(turn: int, *joined: str) -> ModelRequested:
    named = tuple(map(MessageId, joined))
    return ModelRequested(turn=turn, call="c", round=1, preamble="p", link="l", sections={}, joined=named)


def replied(turn: int, *blocks: Block) -> ModelReplied:
    return ModelReplied(turn=turn, call="c", round=1, blocks=blocks, stop_reason="end_turn")


def finished(turn: int, call_id: str, name: str, text: str, outcome: Outcome = Outcome.SUCCEEDED) -> ToolFinished:
    block = tool_result_block(call_id, text, is_error=outcome is not Outcome.SUCCEEDED)
    return ToolFinished(turn=turn, call_id=CallId(call_id), name=name, outcome=outcome, block=block)


def use(call_id: str, name: str, **arguments: Any) -> Block:
    return canonical({"type": "tool_use", "id": call_id, "name": name, "input": arguments})


def of(*records: JournalRecord, messages: Sequence[MessageReceived] = ()) -> EarlierTurn:
    return turn_of(records, {message.message_id: message for message in messages})


def whole(turn: int, message: str) -> list[JournalRecord]:
    """A turn that takes ``message`` and answers."""
    return [
        prepared(turn, message),
        requested(turn),
        replied(turn, text_block(f"reply {turn}")),
        TurnFinished(turn=turn),
    ]


def backwards(records: Sequence[JournalRecord], *, page: int) -> list[EarlierTurn]:
    reader, turns = Backwards(), list[EarlierTurn]()
    for end in range(len(records), 0, -page):
        turns += reader.take(records[max(end - page, 0) : end])
    return turns + reader.rest()


def test_a_turn_tells_who_said_what_with_calls_and_results() -> None:
    turn = of(
        prepared(7, "m1", signal=(text_block("<context/>"),), turn_only=(text_block("<policies/>"),)),
        requested(7),
        replied(7, THINKING, text_block("One moment."), use("x", "count", what="pills \u00fc"), use("y", "count")),
        finished(7, "y", "count", "none", Outcome.FAILED),
        finished(7, "x", "count", "seven"),
        requested(7, "m2"),
        replied(7, text_block("Seven.")),
        TurnFinished(turn=7),
        messages=(received("m1"), received("m2")),
    )
    assert (turn.number, turn.at_us, turn.ending, turn.is_refused) == (7, 7, "", False)
    assert turn.parts == (
        Part(Voice.CONTEXT, "what the user worked on", "<context/>"),
        Part(Voice.USER, "user ann", "m1"),
        Part(Voice.ASSISTANT, "assistant", "One moment."),
        Part(Voice.CALL, "assistant calls count, call 1", '{"what":"pills \u00fc"}'),
        Part(Voice.CALL, "assistant calls count, call 2", "{}"),
        Part(Voice.RESULT, "result of count, call 2: failed", "none"),
        Part(Voice.RESULT, "result of count, call 1: succeeded", "seven"),
        Part(Voice.USER, "user ann", "m2"),
        Part(Voice.ASSISTANT, "assistant", "Seven."),
    )
    assert turn.said_by(Voice.USER) == "m1\n\nm2"
    assert turn.said_by(Voice.ASSISTANT) == "One moment.\n\nSeven."


def test_a_message_that_is_not_found_and_one_that_is_no_text_are_told() -> None:
    image = canonical({"type": "image", "source": {}})
    turn = of(prepared(1, "m1", "m2"), messages=(received("m2", text_block("look"), image),))
    assert [(part.title, part.text) for part in turn.parts] == [
        ("user, a message that was not found: m1", ""),
        ("user ann", "look"),
        ("user ann, image not shown", ""),
    ]


def test_a_file_is_told_by_its_name_and_that_it_cannot_be_read_again() -> None:
    file = marker_block(attachment(name="scan.png"))
    turn = of(prepared(1, "m1"), messages=(received("m1", text_block("look"), file),))
    title = "user ann, attachment scan.png (image/png), which cannot be read again; the user may send it again"
    assert turn.parts[-1] == Part(Voice.USER, title, "", "scan.png")
    assert turn.said_by(Voice.USER) == "look"


@pytest.mark.parametrize(
    ("end", "ending"),
    [
        (TurnCancelled(turn=1, reason="client", note=NOTE, partial=(text_block("I was"),)), "cancelled (client)"),
        (TurnFailed(turn=1, code="crashed", detail="", note=NOTE, partial=(text_block("I was"),)), "failed (crashed)"),
    ],
)
def test_a_reply_that_was_cut_short_is_marked(end: TurnCancelled | TurnFailed, ending: str) -> None:
    turn = of(prepared(1, "m1"), requested(1), end, messages=(received("m1"),))
    assert turn.ending == ending
    assert turn.parts[-1] == Part(Voice.ASSISTANT, "assistant, cut short", "I was")


def test_nothing_of_a_refused_turn_is_told() -> None:
    turn = of(prepared(1, "m1"), replied(1, text_block("No.")), TurnRefused(turn=1, detail="", note=NOTE))
    assert (turn.parts, turn.is_refused) == ((), True)


def test_the_late_end_of_a_write_is_told_where_it_was_heard() -> None:
    late = LateResult(
        call_id=CallId("x"), name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=text_block("It paid.")
    )
    turn = of(prepared(2), late)
    assert turn.parts == (Part(Voice.RESULT, "late end of pay, called in turn 1: succeeded", "It paid."),)


def test_what_quotes_turns_is_not_quoted_again() -> None:
    turn = of(prepared(2), finished(2, "x", READ_EARLIER, "turn 1 said much"))
    title = f"result of {READ_EARLIER}, call 1: succeeded; it quotes turns, which can be read themselves"
    assert turn.parts == (Part(Voice.RESULT, title, ""),)


def test_a_turn_names_the_messages_that_begin_and_join_it() -> None:
    assert list(named_in([*whole(1, "m1"), requested(1, "m9")])) == ["m1", "m9"]


@pytest.mark.parametrize("page", [1, 2, 3, 5, 100])
def test_read_backwards_turns_come_newest_first_with_their_messages(page: int) -> None:
    changed = ContextChanged(context=WorkingContext(), version=1, principal="ann")
    records = [
        received("m1"),
        *whole(1, "m1")[:2],
        received("m2"),
        received("m3"),
        *whole(1, "m1")[2:],
        *whole(2, "m2"),
        LateResult(call_id=CallId("x"), name="pay", of_turn=1, outcome=Outcome.SUCCEEDED, note=NOTE),
        changed,
        *whole(3, "m3"),
    ]
    turns = backwards(records, page=page)
    assert [(turn.number, turn.said_by(Voice.USER)) for turn in turns] == [(3, "m3"), (2, "m2"), (1, "m1")]
    assert [part.title for part in turns[1].parts][-1].startswith("late end of pay")


def test_turns_whose_messages_were_not_found_come_last() -> None:
    reader = Backwards()
    assert reader.take(whole(2, "m2")) == []
    assert [turn.parts[0].title for turn in reader.rest()] == ["user, a message that was not found: m2"]
    assert reader.rest() == []
