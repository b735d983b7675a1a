"""Which turn answers a message, and how it ended."""

from torpor.cli.turn_watch import AnsweringTurn, Ending
from torpor.records.events import (
    AnyEvent,
    MessageReceivedEvent,
    ModelFailedEvent,
    ReplyFinishedEvent,
    ToolFinishedEvent,
    TurnCancelledEvent,
    TurnFailedEvent,
    TurnFinishedEvent,
    TurnRefusedEvent,
    TurnStartedEvent,
)
from torpor.records.ids import CallId, MessageId
from torpor.records.terms import Offer, Outcome

MINE = MessageId("mine")


def received(event: int, message: str = MINE) -> AnyEvent:
    return MessageReceivedEvent(event=event, at_us=0, message_id=MessageId(message), principal="ada", text="hi")


def started(event: int, turn: int, message: str = MINE) -> AnyEvent:
    return TurnStartedEvent(event=event, at_us=0, turn=turn, messages=(MessageId(message),))


def replied(event: int, turn: int, text: str) -> AnyEvent:
    return ReplyFinishedEvent(event=event, at_us=0, turn=turn, call="c", text=text)


def finished(event: int, turn: int) -> AnyEvent:
    return TurnFinishedEvent(event=event, at_us=0, turn=turn)


def watched(*events: AnyEvent, steers: bool = False, accepted_at: int = 1) -> AnsweringTurn:
    turn = AnsweringTurn(MINE, accepted_at=accepted_at, steers=steers)
    turn.take(events)
    return turn


def test_last_reply_of_the_turn_that_takes_the_message_is_the_answer() -> None:
    tool = ToolFinishedEvent(event=4, at_us=0, turn=7, call_id=CallId("k"), name="pay", outcome=Outcome.SUCCEEDED)

    turn = watched(received(1), started(2, 7), replied(3, 7, "I pay."), tool, replied(5, 7, "Paid."), finished(6, 7))

    assert (turn.turn, turn.text, turn.ending) == (7, "Paid.", Ending.FINISHED)
    assert turn.tools == [{"name": "pay", "outcome": "succeeded"}]
    assert turn.is_certain


def test_calls_that_failed_on_the_way_and_how_the_last_reply_ended_are_kept() -> None:
    failed = ModelFailedEvent(event=3, at_us=0, turn=7, call="7-1-1", code="model_overloaded", detail="", retry_at_us=1)
    other = ModelFailedEvent(event=4, at_us=0, turn=6, call="6-1-1", code="model_overloaded", detail="")
    cut = ReplyFinishedEvent(event=5, at_us=0, turn=7, call="7-1-2", text="And", stop_reason="max_tokens")

    turn = watched(received(1), started(2, 7), failed, other, cut, finished(6, 7))

    assert (turn.waits, turn.stop_reason) == ([failed], "max_tokens")


def test_turns_of_other_messages_are_no_answer() -> None:
    turn = watched(replied(2, 6, "other"), finished(3, 6), started(4, 7), replied(5, 7, "mine"))

    assert (turn.text, turn.ending) == ("mine", None)


def test_what_was_said_of_a_cancelled_turn_is_kept_with_the_reason() -> None:
    turn = watched(started(2, 7), TurnCancelledEvent(event=3, at_us=0, turn=7, reason="client", text="Once"))

    assert (turn.ending, turn.text, turn.detail) == (Ending.CANCELLED, "Once", "client")


def test_failed_turn_tells_its_code() -> None:
    turn = watched(started(2, 7), TurnFailedEvent(event=3, at_us=0, turn=7, code="crashed", detail="thrice", text="On"))

    assert (turn.ending, turn.text, turn.code, turn.detail) == (Ending.FAILED, "On", "crashed", "thrice")


def test_what_a_failed_turn_offers_is_told() -> None:
    failed = TurnFailedEvent(event=3, at_us=0, turn=7, code="crashed", detail="thrice", offers=(Offer.RETRY,))
    assert watched(started(2, 7), failed).offers == (Offer.RETRY,)


def test_nothing_of_a_refused_turn_is_told_but_why() -> None:
    turn = watched(started(2, 7), replied(3, 7, "As for"), TurnRefusedEvent(event=4, at_us=0, turn=7, detail="no"))
    assert (turn.ending, turn.text, turn.detail) == (Ending.REFUSED, "", "no")


def test_steer_that_joins_a_running_turn_is_answered_by_it_as_far_as_is_known() -> None:
    turn = watched(replied(2, 6, "with yours"), finished(3, 6), steers=True)

    assert (turn.turn, turn.text, turn.ending, turn.is_certain) == (6, "with yours", Ending.FINISHED, False)


def test_steer_that_came_too_late_is_answered_by_the_turn_that_takes_it() -> None:
    turn = watched(replied(2, 6, "too late"), finished(3, 6), steers=True)

    turn.take([replied(2, 6, "too late"), finished(3, 6), started(4, 7), replied(5, 7, "mine"), finished(6, 7)])

    assert (turn.turn, turn.text, turn.ending, turn.is_certain) == (7, "mine", Ending.FINISHED, True)


def test_turns_before_the_message_was_accepted_are_no_answer_to_a_steer() -> None:
    turn = watched(replied(3, 6, "earlier"), finished(4, 6), steers=True, accepted_at=5)

    assert (turn.turn, turn.ending) == (0, None)


def test_events_seen_twice_change_nothing() -> None:
    events = (started(2, 7), replied(3, 7, "mine"), finished(4, 7), started(5, 8, "other"), replied(6, 8, "other"))

    turn = watched(*events)
    turn.take(events)

    assert (turn.turn, turn.text, turn.ending) == (7, "mine", Ending.FINISHED)
