"""A reply out of the events of its stream, whole or not at all."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.models import Heard
from torpor.model.assemble import Assembler, ErrorTold
from torpor.model.contract import ModelReply
from torpor.provider_errors import StreamLost
from torpor.records.terms import Usage

Event = dict[str, Any]

START: Event = {
    "type": "message_start",
    "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 5, "cache_read_input_tokens": 7}},
}
STOP: Event = {"type": "message_stop"}


def delta(stop_reason: str | None = "end_turn", **usage: Any) -> Event:
    return {"type": "message_delta", "delta": {"stop_reason": stop_reason}, "usage": usage}


def begun(block: Event, index: int = 0) -> Event:
    return {"type": "content_block_start", "index": index, "content_block": block}


def more(index: int = 0, **fields: Any) -> Event:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def ended(index: int = 0) -> Event:
    return {"type": "content_block_stop", "index": index}


def text(*pieces: str, index: int = 0) -> list[Event]:
    deltas = [more(index, type="text_delta", text=piece) for piece in pieces]
    return [begun({"type": "text", "text": ""}, index), *deltas, ended(index)]


def call(*pieces: str, index: int = 0, **fields: Any) -> list[Event]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {}} | fields
    deltas = [more(index, type="input_json_delta", partial_json=piece) for piece in pieces]
    return [begun(block, index), *deltas, ended(index)]


def citation(text: str) -> Event:
    place = {"document_index": 0, "document_title": None, "start_char_index": 0, "end_char_index": 1}
    return {"type": "char_location", "cited_text": text, **place}


def encoded(event: Event) -> bytes:
    return json.dumps(event).encode()


def assembled(*events: Event) -> tuple[ModelReply, Heard]:
    heard = Heard()
    assembler = Assembler(heard)
    for event in events:
        assembler.take(encoded(event))
        assembler.hand_on()
    return assembler.reply(request_id="req_1"), heard


def blocks(*events: Event) -> list[Any]:
    reply, _ = assembled(START, *events, delta(), STOP)
    return [msgspec.json.decode(block) for block in reply.blocks]


def test_text_is_handed_on_piece_by_piece_and_becomes_one_block() -> None:
    reply, heard = assembled(START, *text("Hel", "", "lo"), delta(output_tokens=3), STOP)
    assert heard.pieces == ["Hel", "lo"]
    assert [bytes(block) for block in reply.blocks] == [b'{"text":"Hello","type":"text"}']
    assert heard.blocks == list(reply.blocks)
    assert (reply.stop_reason, reply.model, reply.request_id) == ("end_turn", "m", "req_1")
    assert reply.usage == Usage(input_tokens=5, cache_read_input_tokens=7, output_tokens=3)


def test_text_that_came_in_one_read_is_handed_on_in_one_piece_and_before_its_block() -> None:
    heard = Heard()
    assembler = Assembler(heard)
    begin, first, second, end = text("Hel", "lo")
    for event in (START, begin, first, second):
        assembler.take(encoded(event))
    assert heard.pieces == []
    assembler.hand_on()
    assembler.hand_on()
    assert heard.pieces == ["Hello"]
    assembler.take(encoded(more(type="text_delta", text="!")))
    assembler.take(encoded(end))
    assert (heard.pieces, len(heard.blocks)) == (["Hello", "!"], 1)


def test_text_that_a_block_begins_with_belongs_to_it() -> None:
    reply, heard = assembled(
        START, begun({"type": "text", "text": "He"}), more(type="text_delta", text="llo"), ended(), delta(), STOP
    )
    assert heard.pieces == ["He", "llo"]
    assert msgspec.json.decode(reply.blocks[0])["text"] == "Hello"


def test_usage_is_cumulative_and_what_is_left_out_stays() -> None:
    reply, _ = assembled(START, delta(None, output_tokens=2), delta(output_tokens=9, input_tokens=None), STOP)
    assert reply.usage == Usage(input_tokens=5, cache_read_input_tokens=7, output_tokens=9)


def test_thinking_is_kept_as_it_came_with_its_signature() -> None:
    found = blocks(
        begun({"type": "thinking", "thinking": "", "signature": ""}),
        more(type="thinking_delta", thinking="h"),
        more(type="thinking_delta", thinking="m"),
        more(type="signature_delta", signature="c2ln"),
        ended(),
        begun({"type": "thinking", "thinking": None, "signature": "as begun", "novelty": 1}, 1),
        ended(1),
        begun({"type": "redacted_thinking", "data": "eA=="}, 2),
        ended(2),
    )
    assert found == [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "thinking", "thinking": "", "signature": "as begun"},
        {"type": "redacted_thinking", "data": "eA=="},
    ]


def test_citations_are_collected_and_none_are_left_out() -> None:
    first, second = citation("a"), citation("b")
    found = blocks(
        begun({"type": "text", "text": "", "citations": None}),
        more(type="text_delta", text="it"),
        more(type="citations_delta", citation=first),
        more(type="citations_delta"),
        more(type="citations_delta", citation={"type": "scent", "cited_text": "c"}),
        more(type="citations_delta", citation=second | {"novelty": 1}),
        ended(),
        *text("no", index=1),
        begun({"type": "text", "text": "", "citations": []}, 2),
        ended(2),
    )
    assert [block.get("citations") for block in found] == [[first, second], None, None]


@pytest.mark.parametrize(
    ("pieces", "arguments"),
    [
        ((), {}),
        (("",), {}),
        ((" ", "\n"), {}),
        (('{"to": "b', 'ob"}'), {"to": "bob"}),
        (('{"to": "\\u00', 'e9"}'), {"to": "é"}),
        (("{}",), {}),
    ],
)
def test_arguments_are_read_once_their_block_is_complete(pieces: tuple[str, ...], arguments: Any) -> None:
    reply, _ = assembled(START, *call(*pieces), delta("tool_use"), STOP)
    assert msgspec.json.decode(reply.blocks[0])["input"] == arguments
    assert reply.unusable == {}


@pytest.mark.parametrize(
    "arguments",
    [
        '{"cmd": "rm -rf build", "only_if": "/a',
        '{"a": 1]x',
        '{"a": 1} {"b": 2}',
        "[1]",
        '"text"',
        "null",
        "3",
        '{"a": 1e999}',
        '{"a": "\\ud83d"}',
        '{"a": NaN}',
        "[" * 100_000,
        '{"a": ' + "[" * 65 + "]" * 65 + "}",
        '{"a":' * 10_000 + "1" + "}" * 10_000,
    ],
)
def test_arguments_that_are_not_one_whole_object_are_none_and_the_call_unusable(arguments: str) -> None:
    reply, _ = assembled(START, *call(arguments), delta("tool_use"), STOP)
    assert msgspec.json.decode(reply.blocks[0])["input"] == {}
    assert reply.unusable[0].startswith("arguments of pay are not a JSON object")
    assert reply.unusable[0].endswith("nothing was done")


def test_a_block_of_a_kind_that_no_request_may_repeat_is_left_out_and_named() -> None:
    reply, heard = assembled(
        START,
        begun({"type": "scent", "note": "rain"}),
        more(type="scent_delta", note="!"),
        ended(),
        begun({"note": "of no type"}, 1),
        ended(1),
        *text("yes", index=2),
        delta(),
        STOP,
    )
    assert reply.dropped == ("scent", "none")
    assert [msgspec.json.decode(block)["type"] for block in reply.blocks] == ["text"]
    assert len(heard.blocks) == 1


@pytest.mark.parametrize("block", [{"type": "text", "text": ""}, {"type": "tool_use", "id": "a", "name": "pay"}])
def test_fields_that_no_request_may_repeat_are_left_out(block: Event) -> None:
    (found,) = blocks(begun(block | {"novelty": {"a": 1}, "parsed": None, "cache_control": None}), ended())
    assert found == block


def test_half_a_call_without_an_id_is_told_by_its_place_and_condemns_no_other() -> None:
    whole, half = '{"to": "bob"}', '{"to": "bo'
    reply, _ = assembled(
        START,
        *text("One moment."),
        *call(whole, index=1),
        *call(half, index=2),
        *call(half, index=3, id=None),
        *call(whole, index=4, id=None),
        delta("tool_use"),
        STOP,
    )
    assert list(reply.unusable) == [2, 3]
    assert [msgspec.json.decode(block)["input"] for block in reply.blocks[1:]] == [{"to": "bob"}, {}, {}, {"to": "bob"}]


@pytest.mark.parametrize("end", [[1, 0], [0, 1]])
def test_blocks_that_are_written_side_by_side_stand_by_index_and_are_said_one_after_the_other(end: list[int]) -> None:
    begin = [begun({"type": "text", "text": ""}, index) for index in (0, 1)]
    deltas = [more(index, type="text_delta", text=piece) for index, piece in ((0, "A1 "), (1, "B1 "), (0, "A2 "))]
    reply, heard = assembled(START, *begin, *deltas, *map(ended, end), delta(), STOP)
    assert [msgspec.json.decode(block)["text"] for block in reply.blocks] == ["A1 A2 ", "B1 "]
    assert heard.blocks == list(reply.blocks)
    assert "".join(heard.pieces) == "A1 A2 B1 "


def test_thinking_that_ends_behind_its_call_stands_before_it() -> None:
    found = blocks(begun({"type": "thinking", "thinking": "hm", "signature": "c2ln"}), *call("{}", index=1), ended(0))
    assert [block["type"] for block in found] == ["thinking", "tool_use"]


def test_text_that_waited_is_said_when_the_stream_breaks_unless_nothing_was_said_before() -> None:
    def broken(*events: Event) -> Heard:
        heard = Heard()
        assembler = Assembler(heard)
        for event in events:
            assembler.take(encoded(event))
        assembler.break_off()
        return heard

    first = [begun({"type": "text", "text": "A "}), begun({"type": "text", "text": "B "}, 1)]
    heard = Heard()
    assembler = Assembler(heard)
    for event in first:
        assembler.take(encoded(event))
        assembler.hand_on()
    assert heard.pieces == ["A "]
    assembler.break_off()
    assert (heard.pieces, [msgspec.json.decode(block)["text"] for block in heard.blocks]) == (["A ", "B "], ["A "])
    thought = begun({"type": "thinking", "thinking": "hm"})
    assert broken(thought, *text("B", index=1)).pieces == []


def test_text_of_a_block_that_is_no_text_is_not_said() -> None:
    _, heard = assembled(
        START,
        begun({"type": "scent"}),
        more(type="text_delta", text="roses"),
        ended(),
        begun({"type": "tool_use", "id": "a", "name": "pay"}, 1),
        more(1, type="text_delta", text="roses"),
        ended(1),
        begun({"type": "text", "text": {"text": "roses"}}, 2),
        ended(2),
        delta(),
        STOP,
    )
    assert heard.pieces == []


@pytest.mark.parametrize(
    "after",
    [
        b"[DONE]",
        b'{"type":"error","error":{"type":"overloaded_error","message":"late"}}',
        *map(encoded, [*text("GHOST", index=1), START, delta("refusal")]),
    ],
)
def test_what_follows_the_end_of_the_message_is_no_part_of_it(after: bytes) -> None:
    heard = Heard()
    assembler = Assembler(heard)
    for event in (START, *text("Hello"), delta(), STOP):
        assembler.take(encoded(event))
    assert assembler.take(after) is False
    assembler.hand_on()
    reply = assembler.reply(request_id="")
    assert (heard.pieces, len(reply.blocks), reply.stop_reason) == (["Hello"], 1, "end_turn")


@pytest.mark.parametrize("count", [None, 1.5, "5", -5, 10**30, True, [], {}])
def test_a_count_that_is_none_costs_no_reply(count: object) -> None:
    reply, _ = assembled(START, *text("Hello"), delta(output_tokens=count), STOP)
    assert reply.usage == Usage(input_tokens=5, cache_read_input_tokens=7)
    for told in (count, None):
        reply, _ = assembled(
            {"type": "message_start", "message": {"model": "m", "usage": told}}, delta() | {"usage": told}, STOP
        )
        assert reply.usage == Usage()


def test_words_of_the_hosts_that_go_on_record_are_short_and_clean() -> None:
    long = "x\0\ud800" + "y" * 100_000
    start = {"type": "message_start", "message": {"model": "m\0" + "y" * 1_000}}
    heard = Heard()
    assembler = Assembler(heard)
    for event in (start, begun({"type": "y" * 1_000}), ended(), delta("x\0" + "y" * 1_000), STOP):
        assembler.take(encoded(event))
    reply = assembler.reply(request_id=long)
    assert reply.stop_reason == "x\N{SYMBOL FOR NULL}" + "y" * 62
    assert (len(reply.dropped[0]), len(reply.model), len(reply.request_id)) == (64, 200, 200)
    assert reply.model.startswith("m\N{SYMBOL FOR NULL}")


def test_an_error_that_is_told_in_the_stream_is_one_whatever_its_event_is_called() -> None:
    data = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
    with pytest.raises(ErrorTold) as told:
        Assembler(Heard()).take(data)
    assert told.value.data == data


def test_only_an_event_of_a_reply_begins_it() -> None:
    assembler = Assembler(Heard())
    for event in ({"type": "ping"}, {"type": "weather_report", "delta": 5}):
        assembler.take(encoded(event))
        assert not assembler.has_begun
    assembler.take(encoded(START))
    assert assembler.has_begun


def test_events_and_deltas_that_nobody_knows_are_ignored_and_only_a_ping_is_no_progress() -> None:
    assembler = Assembler(Heard())
    events = [START, {"type": "weather_report", "sky": "blue"}, begun({"type": "text"}), more(type="scent_delta")]
    assert [assembler.take(encoded(event)) for event in (*events, ended(), delta(), STOP)] == [True] * 7
    assert assembler.take(b'{"type": "ping"}') is False
    assert assembler.is_over


@pytest.mark.parametrize(
    "events",
    [
        [],
        [START],
        [START, *text("Hello")],
        [START, *text("Hello"), delta()],
        [START, *text("Hello"), STOP],
        [START, *text("Hello"), delta(None), STOP],
        [START, *text("Hello")[:-1], delta(), STOP],
    ],
)
def test_a_stream_that_ends_before_the_message_does_is_lost(events: list[Event]) -> None:
    with pytest.raises(StreamLost, match="the stream ended before the reply did"):
        assembled(*events)


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([more(type="text_delta", text="x")], "continues block 0, which is not open"),
        ([*text("x"), ended()], "continues block 0, which is not open"),
        ([*text("x")[:-1], begun({"type": "text"})], "begins block 0 again"),
    ],
)
def test_a_stream_whose_blocks_do_not_add_up_is_lost(events: list[Event], told: str) -> None:
    with pytest.raises(StreamLost, match=told):
        assembled(START, *events)


@pytest.mark.parametrize(
    "data",
    [
        *(
            "",
            "nothing",
            '{"type": "content_blo',
            "[]",
            '{"no": "type"}',
            '{"type": 3}',
            '{"type":"x","delta":"\\ud83d"}',
        ),
        '{"type": "content_block_stop", "index": "0"}',
        '{"type": "scent", "a": ' + "[" * 100_000,
        '{"type": "content_block_start", "content_block": {"a":' * 10_000,
    ],
)
def test_an_event_that_cannot_be_read_loses_the_stream(data: str) -> None:
    with pytest.raises(StreamLost, match="an event of the stream cannot be read"):
        Assembler(Heard()).take(data.encode())


ARGUMENTS = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers())
)


@given(ARGUMENTS, st.lists(st.integers(0, 200), max_size=8), st.booleans())
def test_wherever_the_stream_is_cut_into_pieces_the_arguments_are_the_same(
    arguments: dict[str, Any], cuts: list[int], is_ascii: bool
) -> None:
    whole = json.dumps(arguments, ensure_ascii=is_ascii)
    places = sorted({0, *cuts, len(whole)})
    pieces = [whole[start:end] for start, end in pairwise(places)]
    (block,) = blocks(*call(*pieces))
    assert block["input"] == arguments
