"""The fold as bytes and back; any doubt about the bytes is an error, never another state."""

import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.segments import TurnStart
from torpor.conversation.snapshot import BadSnapshot, decode_snapshot, encode_snapshot
from torpor.conversation.state import (
    ChildState,
    ConversationState,
    EndedTurn,
    LiveState,
    LoadedSkill,
    QueuedMessage,
    TurnState,
)
from torpor.conversation.view import View, preamble_of
from torpor.records.blocks import text_block
from torpor.records.context import ContextPart, SelectedRecord, WorkingContext
from torpor.records.ids import CallId, MessageId
from torpor.records.summary import Item, ItemKind, Summary
from torpor.records.terms import Offer, Usage, WhenBusy

STATE = ConversationState(
    seq=12,
    event=7,
    created_us=1_764_400_000_000_000,
    agent="clerk",
    title="errands\nand more",
    is_archived=True,
    changes=4,
    ended=EndedTurn(
        number=3,
        messages=(MessageId("m"),),
        notes=(text_block("[before]"),),
        note=(text_block("[cut]"),),
        skills=(LoadedSkill(key="visits", digest="e"),),
        lasting_bytes=7,
        executed=("pay (unknown)",),
    ),
    retracted=(MessageId("m_0"),),
    turns=3,
    preamble=preamble_of({"model": "m", "system": [{"type": "text", "text": "two\nlines"}]}),
    view=View().extended("user", [text_block("naïve \n")]).extended("assistant", [text_block("yes")]),
    notes=(text_block("[note]"),),
    offers=(Offer.CONTINUE, Offer.RETRY),
    lost_calls=(CallId("a"), CallId("b")),
    children=(ChildState(call_id=CallId("c"), name="digger", child="c-1", turn=3, cause=MessageId("m")),),
    last_usage=Usage(input_tokens=3, output_tokens=4),
    measured_bytes=20,
    context=WorkingContext(
        record=SelectedRecord(type="patient", id="7", version="2", text="Ann\n", label="personal"),
        actions=(ContextPart(text="opened", label="public"),),
    ),
    context_version=5,
    context_told=2,
    context_us=1_764_500_000_000_000,
    flags_digest="f",
    flags=("d", "e"),
    preambles=(preamble_of({"model": "m", "max_tokens": 7}), preamble_of({"model": "m" * 70})),
    lasting_bytes=9,
    starts=(TurnStart(1, 4, 0, 2), TurnStart(2, 9, 40, 1)),
    messages=3,
    generation=2,
    covered=(7, 80),
    summary=Summary(facts=("one",), entities=("Ann: a patient",)),
    items=(Item(id="i1-1", kind=ItemKind.DENIAL, text="never by mail", turn=3),),
    left_out=2,
    left_out_turns=(1, 2),
    is_measured=False,
    fold_failures=1,
    fold_failed_us=1_764_500_000_000_001,
    live=LiveState(
        block=(text_block("calm"),),
        seq=8,
        made_us=1_764_500_000_000_002,
        made_messages=3,
        ordered="live-3",
        orders=3,
        tried_messages=5,
        is_failed=True,
    ),
    said=6,
    recent=(4, 9),
    skills=(
        LoadedSkill(key="refunds", digest="d", allowed_tools=("pay", "look")),
        LoadedSkill(key="visits", digest="e", head=(text_block("Be on time."),)),
    ),
)


@pytest.mark.parametrize("state", [STATE, ConversationState()])
def test_a_state_comes_back_as_it_was(state: ConversationState) -> None:
    assert decode_snapshot(encode_snapshot(state)) == state


def test_every_field_of_a_state_between_turns_is_put_to_the_test() -> None:
    untouched = {name for name in STATE.__struct_fields__ if getattr(STATE, name) == getattr(ConversationState(), name)}
    assert untouched == {"turn", "queued"}


def test_a_state_that_comes_back_can_be_extended_like_the_first_one() -> None:
    more = [text_block("more")]
    assert decode_snapshot(encode_snapshot(STATE)).view.extended("user", more) == STATE.view.extended("user", more)


@pytest.mark.parametrize(
    "changes",
    [
        {"turn": TurnState(number=4, messages=(MessageId("m"),), principal="ann")},
        {"queued": (QueuedMessage(id=MessageId("m"), principal="ann", blocks=(), when_busy=WhenBusy.QUEUE),)},
    ],
)
def test_no_snapshot_is_taken_while_a_turn_runs_or_a_message_waits(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="between turns only"):
        encode_snapshot(msgspec.structs.replace(STATE, **changes))


@given(st.integers(0, len(encode_snapshot(STATE)) - 1), st.integers(1, 255))
def test_a_changed_byte_is_noticed(place: int, change: int) -> None:
    data = bytearray(encode_snapshot(STATE))
    data[place] ^= change
    with pytest.raises(BadSnapshot):
        decode_snapshot(bytes(data))


@given(st.integers(0, len(encode_snapshot(STATE)) - 1))
def test_a_snapshot_cut_short_is_noticed(length: int) -> None:
    with pytest.raises(BadSnapshot):
        decode_snapshot(encode_snapshot(STATE)[:length])


@given(st.binary(max_size=40))
def test_other_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(BadSnapshot):
        decode_snapshot(data)


def sealed(rest: bytes) -> bytes:
    """``rest`` under a checksum that fits, as another program might write it."""
    return b"%08x" % zlib.crc32(rest) + rest


@pytest.mark.parametrize("rest", [b"", b"no newline", b"{}\n", b'{"seq":"one"}\n', b"\n"])
def test_facts_that_cannot_be_read_are_noticed_under_a_good_checksum(rest: bytes) -> None:
    with pytest.raises(BadSnapshot, match="facts of the snapshot"):
        decode_snapshot(sealed(rest))


def test_text_of_another_length_is_noticed_under_a_good_checksum() -> None:
    with pytest.raises(BadSnapshot, match="bytes of text, expected"):
        decode_snapshot(sealed(encode_snapshot(STATE)[8:] + b"x"))
