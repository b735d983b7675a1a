"""What is kept of a reply that was cut."""

from torpor.records.blocks import canonical, text_block
from torpor.records.events import Delta
from torpor.turn.model_call import ReplySoFar


def sink() -> tuple[ReplySoFar, list[Delta]]:
    shown: list[Delta] = []
    return ReplySoFar("1-1-1", publish=shown.append), shown


def test_a_finished_text_block_that_says_nothing_is_not_kept_beside_one_that_does() -> None:
    reply, _ = sink()
    reply.text("  \n")
    reply.block(canonical({"type": "text", "text": "  \n"}))
    reply.text("It is")
    assert reply.partial() == (text_block("It is"),)


def test_nothing_is_kept_when_all_that_was_said_is_blank() -> None:
    reply, _ = sink()
    reply.block(canonical({"type": "thinking", "thinking": "hm", "signature": "s"}))
    reply.text(" \n")
    assert reply.partial() == ()


def test_finished_thinking_is_kept_with_the_text_and_calls_are_not() -> None:
    reply, _ = sink()
    thinking = canonical({"type": "thinking", "thinking": "hm", "signature": "s"})
    reply.block(thinking)
    reply.block(text_block("One moment."))
    reply.block(canonical({"type": "tool_use", "id": "t_1", "name": "look", "input": {}}))
    assert reply.partial() == (thinking, text_block("One moment."))


def test_what_was_said_before_the_request_was_durable_is_shown_in_one_piece_once_it_is() -> None:
    reply, shown = sink()
    reply.text("It ")
    reply.text("is ")
    assert shown == []
    reply.release()
    reply.text("done")
    assert shown == [Delta(call="1-1-1", offset=0, text="It is "), Delta(call="1-1-1", offset=6, text="done")]


def test_text_that_cannot_be_encoded_is_replaced_before_anybody_sees_it() -> None:
    reply, shown = sink()
    reply.release()
    reply.text("half \ud83d, nothing \x00")
    assert [delta.text for delta in shown] == ["half \ufffd, nothing \u2400"]
    assert reply.partial() == (text_block("half \ufffd, nothing \u2400"),)
