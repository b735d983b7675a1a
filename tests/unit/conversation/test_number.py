"""Records get the numbers that follow from the state."""

from torpor.conversation.number import numbered
from torpor.conversation.state import ConversationState, TurnState
from torpor.records.blocks import text_block
from torpor.records.ids import MessageId
from torpor.records.journal import AttemptStarted, JournalRecord, MessageReceived, TurnFinished, TurnPrepared
from torpor.records.terms import StepKind

STATE = ConversationState(seq=7, event=4)
PRIVATE = AttemptStarted(turn=1, step=StepKind.CALL_MODEL, round=1, attempt=2)
PUBLIC = MessageReceived(message_id=MessageId("m"), principal="ann", blocks=(text_block("hello"),))


def test_every_record_gets_the_next_sequence_and_only_public_ones_an_event() -> None:
    records = numbered(STATE, [PUBLIC, PRIVATE, TurnFinished(turn=1)], at_us=9)
    assert [(record.seq, record.event, record.at_us) for record in records] == [(8, 5, 9), (9, 0, 9), (10, 6, 9)]


def test_what_a_record_says_is_left_alone() -> None:
    (record,) = numbered(STATE, [PUBLIC], at_us=9)
    assert record == MessageReceived(
        seq=8, event=5, at_us=9, message_id=PUBLIC.message_id, principal="ann", blocks=PUBLIC.blocks
    )


def test_what_a_turn_shows_names_the_message_that_it_began_with() -> None:
    begun: list[JournalRecord] = [
        TurnPrepared(turn=1, messages=(MessageId("a"), MessageId("b"))),
        PRIVATE,
        PUBLIC,
        TurnFinished(turn=1),
    ]
    assert [record.cause for record in numbered(STATE, begun, at_us=9)] == ["", "", "", "a"]
    running = ConversationState(turn=TurnState(number=1, messages=(MessageId("c"),), principal="ann"))
    assert [record.cause for record in numbered(running, [PRIVATE, TurnFinished(turn=1)], at_us=9)] == ["", "c"]


def test_no_records_need_no_numbers() -> None:
    assert numbered(STATE, [], at_us=9) == ()
