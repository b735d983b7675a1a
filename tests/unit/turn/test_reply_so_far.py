"""What is kept of a reply that was cut."""

import regex
from hypothesis import given
from hypothesis import strategies as st

from torpor.records.blocks import canonical, text_block
from torpor.records.events import Delta
from torpor.turn.model_call import ReplySoFar

PIECES = (
    "word ",
    "e",
    "\u0301",
    "\r",
    "\n",
    "\U0001f469",
    "\u200d",
    "\U0001f1e9",
    "\u0915",
    "\u094d",
    "\u1100",
    "\u1161",
    "",
)


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
    assert shown == [Delta(call="1-1-1", offset=0, text="It is"), Delta(call="1-1-1", offset=5, text=" don")]


def test_a_whole_block_is_shown_once_it_is_durable_to_its_end() -> None:
    reply, shown = sink()
    reply.text("It is")
    reply.block(text_block("It is"))
    assert not reply.has_shown
    reply.release()
    assert shown == [Delta(call="1-1-1", offset=0, text="It is")]


def test_the_last_character_is_kept_back_until_it_is_known_to_be_complete() -> None:
    reply, shown = sink()
    reply.release()
    for piece in ("e", "\u0301", "t", "\u00e9"):
        reply.text(piece)
    assert [delta.text for delta in shown] == ["e\u0301", "t"]
    reply.block(text_block("e\u0301t\u00e9"))
    reply.block(canonical({"type": "tool_use", "id": "t_1", "name": "look", "input": {}}))
    assert [(delta.offset, delta.text) for delta in shown] == [(0, "e\u0301"), (2, "t"), (3, "\u00e9")]


def test_a_character_kept_back_was_not_shown_and_belongs_to_what_was_said() -> None:
    reply, _ = sink()
    reply.release()
    reply.text("\U0001f469\u200d")
    assert not reply.has_shown
    assert reply.partial() == (text_block("\U0001f469\u200d"),)


@given(st.lists(st.sampled_from(PIECES), max_size=30), st.integers(0, 30))
def test_deltas_join_to_what_was_said_and_none_ends_within_a_character(pieces: list[str], opened_at: int) -> None:
    reply, shown = sink()
    for at, piece in enumerate(pieces):
        if at == opened_at:
            reply.release()
        reply.text(piece)
    reply.release()
    said = "".join(pieces)
    reply.block(text_block(said))
    ends = {found.end() for found in regex.finditer(r"\X", said)}
    assert "".join(delta.text for delta in shown) == said
    assert all(delta.offset + len(delta.text) in ends for delta in shown)


def test_text_that_cannot_be_encoded_is_replaced_before_anybody_sees_it() -> None:
    reply, shown = sink()
    reply.release()
    reply.text("half \ud83d, nothing \x00")
    assert [delta.text for delta in shown] == ["half \ufffd, nothing "]
    assert reply.partial() == (text_block("half \ufffd, nothing \u2400"),)
