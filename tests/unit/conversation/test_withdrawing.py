"""Attachments in a view: where they are, what they weigh, and what stands for those that cannot be sent."""

import msgspec
import pytest

from tests.support.marked import attachment
from torpor.conversation.budget import next_request_tokens, pending_bytes
from torpor.conversation.compaction import is_foldable
from torpor.conversation.fold import fold
from torpor.conversation.folding import plan_of
from torpor.conversation.number import numbered
from torpor.conversation.segments import Said, withdrawing
from torpor.conversation.snapshot import decode_snapshot, encode_snapshot
from torpor.conversation.state import BadHistory, ConversationState
from torpor.conversation.transcript import transcript
from torpor.conversation.view import TOKEN_BYTES, View, weight_of
from torpor.conversation.withdrawing import attachments_in, crowded_out, place_of, withdrawn
from torpor.records.attachments import Attachment, Why, attachment_of, is_marker, marker_block, told_of
from torpor.records.blocks import head_of, text_block
from torpor.records.ids import MessageId
from torpor.records.journal import (
    ContextReplaced,
    ConversationCreated,
    JournalRecord,
    MessageReceived,
    ModelReplied,
    ModelRequested,
    TurnFinished,
    TurnPrepared,
)
from torpor.records.terms import FoldReason

ONE, TWO, THREE = (attachment(data, name=name) for data, name in ((b"1", "one"), (b"2", "two"), (b"3", "three")))
MARKER_BYTES_MAX = 200


def test_a_marker_is_small_and_holds_what_it_stands_for() -> None:
    block = marker_block(msgspec.structs.replace(ONE, pages=3))
    assert is_marker(bytes(block))
    assert attachment_of(bytes(block)) == msgspec.structs.replace(ONE, pages=3)
    assert len(bytes(block)) < MARKER_BYTES_MAX
    assert head_of(block).type == "attachment"
    assert told_of(attachment_of(bytes(block))) == "one (image/png, 3 pages)"
    assert told_of(attachment(name="")) == "image/png"


@pytest.mark.parametrize("block", [text_block('{"attachment":{"blob":"'), text_block("x")])
def test_no_other_block_is_taken_for_one(block: bytes) -> None:
    assert not is_marker(bytes(block))
    assert weight_of(msgspec.Raw(bytes(block))) == len(bytes(block))


def view_of(*attachments: Attachment) -> View:
    view = View()
    for number, each in enumerate(attachments):
        view = view.extended("user", [marker_block(each), text_block(f"see {number}")])
        view = view.extended("assistant", [text_block("seen")])
    return view.extended("user", [text_block("and now?")])


def test_a_view_knows_where_they_are_however_it_is_kept() -> None:
    view = view_of(ONE, TWO)
    for kept in (view, view.packed(), view.settled(View()), View().extended("user", ())):
        assert attachments_in(kept) == ((ONE, TWO) if kept.length else ())
    assert view.packed().extended("user", [marker_block(THREE)]).marks[:2] == view.marks


def test_they_weigh_what_their_tokens_do() -> None:
    view = view_of(ONE, TWO)
    markers = sum(len(bytes(marker_block(each))) for each in (ONE, TWO))
    assert view.weight_bytes == view.size_bytes - markers + TOKEN_BYTES * (ONE.tokens + TWO.tokens)
    assert view.weight_before(view.size_bytes) == view.weight_bytes
    assert view.weight_before(0) == 0
    assert view.weight_before(view.marks[1].begin) == view.marks[1].begin + view.marks[0].extra_bytes


@pytest.mark.parametrize(
    ("message", "block", "place"),
    [(0, 0, 0), (2, 0, 1), (0, 1, None), (1, 0, None), (9, 0, None), (0, 9, None), (-1, 0, None)],
)
def test_one_is_found_by_where_a_host_says_that_it_is(message: int, block: int, place: int | None) -> None:
    assert place_of(view_of(ONE, TWO), message=message, block=block) == place


@pytest.mark.parametrize(
    ("bounds", "gone"),
    [
        ({}, ()),
        ({"attachments_max": 2}, (0,)),
        ({"bytes_max": 1}, (0, 1)),
        ({"pages_max": 4}, (0,)),
        ({"bytes_max": 0}, (0, 1, 2)),
    ],
)
def test_the_oldest_make_room(bounds: dict[str, int], gone: tuple[int, ...]) -> None:
    files = [msgspec.structs.replace(each, pages=2) for each in (ONE, TWO, THREE)]
    assert crowded_out(files, **{"attachments_max": 9, "bytes_max": 9, "pages_max": 9, **bounds}) == gone


def told(state: ConversationState, *records: JournalRecord) -> ConversationState:
    return fold(state, numbered(state, records, at_us=1))


def asked(state: ConversationState, *files: Attachment, turn_only: bool = True) -> ConversationState:
    """In a turn that has just begun."""
    turn = state.turns + 1
    blocks = (*map(marker_block, files), text_block(f"see {turn}"))
    beside = (text_block("for this turn alone"),) if turn_only else ()
    return told(
        state,
        *([] if state.seq else [ConversationCreated(agent="clerk")]),
        MessageReceived(message_id=MessageId(f"m_{turn}"), principal="ann", blocks=blocks),
        TurnPrepared(turn=turn, messages=(MessageId(f"m_{turn}"),), turn_only=beside),
    )


def answered(state: ConversationState) -> ConversationState:
    requested = ModelRequested(
        turn=state.turns, call="c", round=1, preamble="", link=state.view.link.hex(), sections={}
    )
    replied = ModelReplied(turn=state.turns, call="c", round=1, blocks=(text_block("seen"),), stop_reason="end_turn")
    return told(state, requested, replied, TurnFinished(turn=state.turns))


def notes_in(view: View) -> list[str]:
    return [text for text in ("one", "two", "three") if f"[Attachment {text} (image/png)".encode() in view.text()]


def test_a_note_stands_for_one_that_cannot_be_sent_and_for_no_other() -> None:
    state = asked(answered(asked(answered(asked(ConversationState(), ONE)), TWO)), THREE, ONE)
    record = withdrawn(state, [1, 3], why=Why.REFUSED)
    after = told(state, record)
    assert attachments_in(after.view) == (ONE, THREE)
    assert notes_in(after.view) == ["one", "two"]
    assert after.turn is not None
    assert after.turn.has_withdrawn
    assert after.turn.base.text() == after.view.text()[: after.turn.base.size_bytes]
    ended = answered(after)
    assert attachments_in(ended.view) == (ONE, THREE)
    assert b"for this turn alone" not in ended.view.text()
    assert decode_snapshot(encode_snapshot(ended)) == ended
    assert decode_snapshot(encode_snapshot(ended)).view.marks == ended.view.marks


def test_that_is_a_fact_of_the_journal_and_nothing_else_will_do() -> None:
    state = asked(ConversationState(), ONE)
    record = withdrawn(state, [0], why=Why.MISSING)
    assert isinstance(record, ContextReplaced)
    assert not told(state, record).turn.has_withdrawn  # type: ignore[union-attr]  # a turn runs
    with pytest.raises(BadHistory, match="leaves link"):
        told(state, msgspec.structs.replace(record, withdrawn={0: text_block("something else")}))


def test_what_a_message_will_bring_is_reckoned_with() -> None:
    state = asked(ConversationState(), turn_only=False)
    heavy = attachment(tokens=50_000)
    waiting = told(state, MessageReceived(message_id=MessageId("m_9"), principal="ann", blocks=(marker_block(heavy),)))
    pending = pending_bytes(waiting, (MessageId("m_9"),))
    assert next_request_tokens(waiting, waiting.view.weight_bytes + pending, bytes_per_token=4.0) > heavy.tokens


def test_blocks_in_between_are_left_alone() -> None:
    assert withdrawing({}) is None
    change = withdrawing({1: text_block("note")}, lambda _, block: text_block(f"changed {head_of(block).text}"))
    assert change is not None
    blocks = [marker_block(ONE), text_block("a"), marker_block(TWO)]
    assert [bytes(change("user", block)) for block in blocks] == [
        bytes(marker_block(ONE)),
        bytes(text_block("changed a")),
        bytes(text_block("note")),
    ]


def test_a_summariser_reads_that_something_was_attached() -> None:
    said = [Said("user", (marker_block(ONE), text_block("look"))), Said("assistant", (text_block("seen"),))]
    (told_turn,) = transcript([(1, said)], text_chars=100, part_chars=100)
    assert told_turn == "Turn 1\nuser: (attached one (image/png))\nuser: look\nassistant: seen"


def test_a_fold_of_turns_with_attachments_gains_what_they_weigh() -> None:
    heavy = attachment(tokens=50_000)
    state = asked(answered(answered_again(asked(ConversationState(), heavy))))
    assert attachments_in(state.view) == (heavy,)
    assert is_foldable(state)
    gone = plan_of(state, FoldReason.EVERYTHING)
    assert state.view.weight_before(gone.kept[0].size_bytes) > TOKEN_BYTES * heavy.tokens


def answered_again(state: ConversationState) -> ConversationState:
    return asked(answered(asked(answered(state))))
