"""Hosts that do what no fault of the API's does: a defined end, nothing stored that a later request trips over."""

import json
import logging
import struct
import zlib
from collections.abc import Sequence
from typing import Any, Final

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.integration.model.evil_host import (
    START,
    answered,
    begin,
    call,
    delta,
    end,
    error,
    event,
    evil_host,
    over,
    streamed,
    text,
)
from tests.integration.model.real_host import ANSWER, KEY, ORDINARY, SOON, host_of, refused, talking_to
from tests.support.doubles import ManualClock
from torpor.conversation.publish import text_of
from torpor.model.circuit import Circuit, CircuitOptions, CircuitState
from torpor.provider_errors import ProviderError
from torpor.records.journal import JournalRecord, ModelFailed, ModelReplied, ToolFinished, TurnFailed, TurnFinished
from torpor.records.terms import Outcome
from torpor_fake_api.server import serving

HI: Final = text("Hi there.")
LATE: Final = event("error", error("overloaded_error", "late"))
DEEP: Final = b'{"a":' * 5_000 + b"1" + b"}" * 5_000


def block(**fields: Any) -> bytes:
    return begin(0, **fields) + end(0)


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """The SDK takes seconds to import, which no test should wait for under a deadline of its own."""
    host_of("http://127.0.0.1:1")._loaded()


async def met(*answers: bytes) -> tuple[JournalRecord, ...]:
    """What a conversation holds that met these answers, and then went on as ever."""
    async with serving(profile="strict") as api, evil_host(api, *answers) as url:
        api.otherwise(ANSWER)
        async with talking_to(url) as engine:
            await engine.ask("do it")
            await engine.ask(ORDINARY)
            await engine.ask(ORDINARY)
            records = await engine.records()
        assert refused(api) == []
    over = [record for record in records if isinstance(record, TurnFinished | TurnFailed)]
    assert [type(record) for record in over[1:]] == [TurnFinished, TurnFinished]
    return records


def first(records: Sequence[JournalRecord]) -> ModelReplied:
    return next(record for record in records if isinstance(record, ModelReplied))


def blocks_of(reply: ModelReplied) -> list[Any]:
    return [msgspec.json.decode(block) for block in reply.blocks]


@pytest.mark.parametrize(
    "events",
    [
        begin(1, type="text", text="", novelty={"a": 1}, parsed=None) + end(1),
        begin(1, type="scent", note="rain") + delta(1, type="text_delta", text="roses") + end(1),
        begin(1, type="mystery_tool_use", id="x1", name="n", input={}) + end(1),
        begin(1, type="_tool_use") + end(1),
        begin(1, type="server_tool_use", id="s", name="web_search", input={}) + end(1),
        begin(1, type="web_search_tool_result", tool_use_id="s", content=[]) + end(1),
        begin(1, type="redacted_thinking") + end(1),
        begin(1, type="redacted_thinking", data=None) + end(1),
        begin(1, type="container_upload", file_id="f") + end(1),
        event("content_block_start", {"type": "content_block_start", "index": 1, "content_block": None}) + end(1),
        begin(1, type="thinking", thinking="hm", signature="") + end(1),
        event("weather", {"type": "weather", "delta": 5}),
    ],
)
@pytest.mark.parametrize("stop_reason", ["end_turn", "max_tokens"])
async def test_a_reply_with_something_new_in_it_is_kept_without_it(events: bytes, stop_reason: str) -> None:
    records = await met(streamed(START, HI, events, over(stop_reason)))
    assert blocks_of(first(records)) == [{"type": "text", "text": "Hi there."}]


async def test_a_call_with_something_new_in_it_runs_and_a_later_request_may_hold_it() -> None:
    records = await met(streamed(START, call('{"n": 1}', novelty=1, caller={"type": "new"}), over("tool_use")))
    assert set(blocks_of(first(records))[0]) == {"type", "id", "name", "input"}
    assert [record.outcome for record in records if isinstance(record, ToolFinished)] == [Outcome.SUCCEEDED]


@pytest.mark.parametrize("cut", ['{"amount": 5', '{"amount": [', DEEP.decode()])
@pytest.mark.parametrize("id_", ["toolu_1", "", None])
async def test_half_a_call_never_runs_whatever_its_id(cut: str, id_: str | None) -> None:
    whole = call('{"n": 1}', index=1, id=id_)
    records = await met(streamed(START, call(cut, id=id_), whole, over("tool_use")))
    ends = [record for record in records if isinstance(record, ToolFinished)]
    assert [record.outcome for record in ends] == [Outcome.FAILED, Outcome.SUCCEEDED]


@pytest.mark.parametrize(
    "after",
    [b"data: [DONE]\n\n", LATE, text("GHOST", 1), START + text("again") + over(), b"event: x\ndata: " + DEEP, b"\xff"],
)
async def test_whatever_follows_the_end_of_a_message_is_no_part_of_it(after: bytes) -> None:
    records = await met(streamed(START, HI, over(), after))
    assert text_of(first(records).blocks) == "Hi there."
    assert not any(isinstance(record, ModelFailed) for record in records)


@pytest.mark.parametrize("usage", [None, {"output_tokens": None}, {"output_tokens": 1.5}, {"output_tokens": "5"}, 5])
async def test_odd_counts_cost_no_reply(usage: object) -> None:
    records = await met(streamed(START, HI, over(usage=usage)))
    assert text_of(first(records).blocks) == "Hi there."


def bomb(*, megabytes: int) -> bytes:
    """A gzip file that becomes so long; each megabyte but the first is the same bytes, packed once."""
    packer, one = zlib.compressobj(9, wbits=-zlib.MAX_WBITS), b"x" * 1_000_000
    first, other = (packer.compress(one) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    crc = 0
    for _ in range(megabytes):
        crc = zlib.crc32(one, crc)
    length = struct.pack("<II", crc, megabytes * len(one))
    return b"\x1f\x8b\x08\0\0\0\0\0\x02\xff" + first + other * (megabytes - 1) + packer.flush() + length


BAD: Final = {
    "an event too deep to read": streamed(START, event("content_block_delta", DEEP)),
    "a block too deep to read": streamed(START, event("content_block_start", DEEP)),
    "an error too deep to read": streamed(START, event("error", b'{"error":' + DEEP + b"}")),
    "a lone surrogate in an error event": streamed(event("error", error("api_error", "bad \ud800 thing"))),
    "a lone surrogate in an error": answered(500, error("api_error", "bad \udc00 \0 thing")),
    "a date no clock has": answered(
        429, error("rate_limit_error", "slow"), b"retry-after: 1 Jan 99999999999999999999 1:1:1 -0000"
    ),
    "an encoding that is no text's": answered(500, b"<h1>bad</h1>", kind=b"text/html; charset=hex"),
    "an encoding that crashes": answered(500, b"<h1>bad</h1>", kind=b"text/html; charset=bz2"),
    "an encoding that refuses": answered(500, b"<h1>b\xffad</h1>", kind=b"text/html; charset=idna"),
    "an encoding nobody knows": answered(500, b"\0\1", b"content-encoding: zstd"),
    "a bomb": answered(500, bomb(megabytes=200), b"content-encoding: gzip"),
    "something else": answered(200, b"<h1>log in here</h1>", kind=b"text/html"),
    "nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    "bytes that are no gzip": streamed(START, HI, headers=b"content-encoding: gzip\r\n"),
}


@pytest.mark.parametrize("name", BAD)
async def test_whatever_a_host_does_is_a_fault_that_may_pass(name: str) -> None:
    records = await met(BAD[name])
    (failed,) = [record for record in records if isinstance(record, ModelFailed)]
    assert failed.retry_at_us
    assert len(failed.detail) <= 500
    assert failed.detail.isprintable()


async def test_what_was_shown_before_an_event_that_cannot_be_read_is_kept() -> None:
    said = begin(0, type="text", text="") + delta(0, type="text_delta", text="Part one. ")
    records = await met(streamed(START, said, event("content_block_delta", DEEP)))
    (failed,) = [record for record in records if isinstance(record, TurnFailed)]
    assert (failed.code, text_of(failed.partial)) == ("model_stream_lost", "Part one. ")


async def test_what_was_shown_of_blocks_side_by_side_is_kept_in_their_order() -> None:
    both = begin(0, type="text", text="") + begin(1, type="text", text="")
    pieces = (delta(index, type="text_delta", text=piece) for index, piece in ((0, "A1 "), (1, "B1 "), (0, "A2 ")))
    records = await met(streamed(START, both, *pieces, end(1)))
    (failed,) = [record for record in records if isinstance(record, TurnFailed)]
    assert [msgspec.json.decode(block)["text"] for block in failed.partial] == ["A1 A2 ", "B1 "]


async def test_a_redirect_is_followed_by_nobody_and_named() -> None:
    records = await met(answered(307, b"", b"location: http://127.0.0.1:9/other"))
    (failed,) = [record for record in records if isinstance(record, ModelFailed)]
    assert (failed.code, failed.retry_at_us) == ("model_request_invalid", 0)
    assert "http://127.0.0.1:9/other" in failed.detail


async def test_an_error_event_without_a_name_keeps_its_kind() -> None:
    records = await met(streamed(b"data: " + error("overloaded_error", "busy") + b"\n\n"))
    (failed,) = [record for record in records if isinstance(record, ModelFailed)]
    assert (failed.code, failed.detail) == ("model_overloaded", "busy")


@pytest.mark.parametrize(
    "echo",
    [
        answered(401, error("authentication_error", f"invalid x-api-key: Bearer {KEY}")),
        answered(502, f"<h1>{KEY}</h1>".encode(), kind=b"text/html"),
        answered(302, b"", b"location: http://elsewhere/?key=" + KEY.encode()),
        streamed(event("error", error("api_error", KEY))),
        streamed(event("error", KEY.encode())),
        streamed(START, HI, over(KEY), headers=b"request-id: " + KEY.encode() + b"\r\n"),
        streamed(START, HI, begin(1, type=KEY), end(1), over()),
        answered(200, b"{}", kind=KEY.encode()),
    ],
)
async def test_a_key_that_a_host_repeats_reaches_no_record_no_event_and_no_log(
    echo: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="torpor")
    with capture_logs() as logs:
        records = await met(echo)
    assert KEY not in msgspec.json.encode(records).decode()
    assert KEY not in repr(logs)
    assert KEY not in caplog.text


async def test_a_host_that_answers_something_else_opens_its_circuit() -> None:
    clock = ManualClock()
    circuit = Circuit(CircuitOptions(failures_max=3), clock=clock)
    wrong = answered(200, b"<h1>log in here</h1>", kind=b"text/html")
    async with (
        serving(profile="strict") as api,
        evil_host(api, *[wrong] * 3) as url,
        talking_to(url, host=host_of(url, clock=clock, circuit=circuit), retry=SOON) as engine,
    ):
        await engine.ask("do it")
        (failed,) = await engine.records_of(TurnFailed)
    assert circuit.state is CircuitState.OPEN
    assert failed.detail == f"{url} answered text/html, and no reply in it"


async def test_a_host_that_says_nothing_is_told_as_such() -> None:
    async def never(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await anyio.sleep_forever()

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.listeners[0].extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, never)
        host = host_of(f"http://127.0.0.1:{port}", progress_deadline_s=0.2)
        with pytest.raises(ProviderError, match=r"did not answer within 0\.2 s$"):
            await host.probe()
        await host.aclose()
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "told", [b"[]", b"{}", b'{"max_input_tokens": "many"}', b'{"max_input_tokens": null}', b'{"max_input_tokens": -1}']
)
async def test_a_window_that_is_none_is_not_told(told: bytes) -> None:
    async with serving(profile="strict") as api, evil_host(api, answered(200, told)) as url:
        host = host_of(url)
        assert await host.window_tokens() is None
        await host.aclose()


@pytest.mark.parametrize("told", [b"<h1>", DEEP, json.dumps("x" * 2_000_000).encode()])
async def test_whatever_comes_in_place_of_a_window_is_a_fault(told: bytes) -> None:
    async with serving(profile="strict") as api, evil_host(api, answered(200, told)) as url:
        host = host_of(url)
        with pytest.raises(ProviderError):
            await host.window_tokens()
        await host.aclose()


async def test_the_libraries_below_log_nothing_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await met(streamed(START, HI, over()))
    assert ORDINARY not in caplog.text
