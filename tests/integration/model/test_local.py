"""The local model as a real server: llama.cpp in this process, real weights, the engine around it.

What it says is never looked at: only the order of its events, what it counts, and how it ends.
"""

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from tests.integration.model.local_weights import small_model_file
from tests.support.doubles import ManualClock, calls, says, use
from tests.support.engine import KEY, Engine, running_engine
from torpor.clock import RandomIds
from torpor.conversation.budget import input_tokens
from torpor.conversation.publish import text_of
from torpor.model.anthropic_host import AnthropicHost
from torpor.model.circuit import Circuit, CircuitOptions
from torpor.model.event_stream import EventSplitter
from torpor.model.local import SYSTEM, LocalHost, LocalServer, local_options
from torpor.model.registry import ModelRegistry
from torpor.provider_errors import ModelUnknown
from torpor.records.events import Delta, Progress
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord, ModelReplied, TurnCancelled, TurnFailed, TurnFinished
from torpor.store.memory_data import MemoryData

PATIENT_S: Final = 120.0
"""One core, shared with other tests, may take long for a reply."""
WINDOW: Final = 1024
LOCAL: Final = {"kind": "local", "path": "weights.gguf"}
OTHER: Final = ConversationKey("acme", "ann", "c_2")
STORY: Final = "Tell a long story about the sea."


class BoundedHost(LocalHost):
    """Says at most so much, and always the same."""

    max_tokens = 12

    def request_fields(self) -> Mapping[str, Any]:
        return {**super().request_fields(), "max_tokens": self.max_tokens, "temperature": 0}


class Listener:
    """Implements ``bus.contract.Subscriber``: tells when a turn says something and when it ends."""

    def __init__(self) -> None:
        self.spoke = anyio.Event()
        self.ended = anyio.Event()

    def on_records(self, key: ConversationKey, records: Sequence[JournalRecord]) -> None:
        if any(isinstance(record, TurnFinished | TurnFailed | TurnCancelled) for record in records):
            self.ended.set()

    def on_delta(self, key: ConversationKey, delta: Delta) -> None:
        self.spoke.set()

    def on_standing(self, key: ConversationKey) -> None: ...

    def on_gone(self, key: ConversationKey) -> None: ...

    def on_progress(self, key: ConversationKey, progress: Progress) -> None:
        pass


@pytest.fixture(scope="module")
def file() -> Path:
    return small_model_file()


@pytest.fixture(scope="module")
def server(file: Path) -> Iterator[LocalServer]:
    table = {**LOCAL, "path": str(file), "threads": 1, "window_tokens": WINDOW}
    server = LocalServer(local_options(table, home=Path(), where="here"), key="only-ours")
    server.url()
    yield server
    server.close()


@asynccontextmanager
async def talking_to(
    server: LocalServer, *, data: MemoryData | None = None, max_tokens: int = BoundedHost.max_tokens
) -> AsyncIterator[Engine]:
    """An engine that asks it. The server outlives the test, its connections and its event loop do not."""
    server.turn = anyio.Lock()
    clock = ManualClock()
    host = BoundedHost(server, circuit=Circuit(CircuitOptions(), clock=clock), clock=clock)
    host.max_tokens = max_tokens
    await host.warm()
    try:
        async with running_engine(host=host, table=LOCAL, data=data, system="You answer in few words.") as engine:
            yield engine
    finally:
        await AnthropicHost.aclose(host)


def listen(engine: Engine, *, key: ConversationKey = KEY) -> Listener:
    listener = Listener()
    engine.bus.subscribe(key, listener)
    return listener


async def ask(engine: Engine, text: str, *, key: ConversationKey = KEY) -> None:
    """Send it, and wait as long as one core may need."""
    listener = listen(engine, key=key)
    await engine.send(text, key=key)
    with anyio.fail_after(PATIENT_S):
        await listener.ended.wait()
    await engine.rested(key)


def posted(server: LocalServer, body: Mapping[str, Any], *, key: str) -> bytes:
    headers = {"content-type": "application/json", "x-api-key": key}
    request = urllib.request.Request(f"{server.url()}/v1/messages", json.dumps(body).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=PATIENT_S) as answer:
        return bytes(answer.read())


BODY: Final = {
    "model": "local",
    "max_tokens": 8,
    "temperature": 0,
    "stream": True,
    "system": [{"type": "text", "text": SYSTEM}],
    "messages": [{"role": "user", "content": [{"type": "text", "text": STORY}]}],
}


def test_events_come_in_the_order_of_the_messages_api(server: LocalServer) -> None:
    events = EventSplitter().take(posted(server, BODY, key=server.key))
    names = [event.name.decode() for event in events if event.name != b"ping"]
    told = {event.name.decode(): json.loads(event.data) for event in events}

    assert names[:2] == ["message_start", "content_block_start"]
    assert set(names[2:-3]) == {"content_block_delta"}
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert told["message_start"]["message"]["usage"]["input_tokens"] > 0
    assert told["message_delta"]["usage"]["output_tokens"] == BODY["max_tokens"]
    assert told["message_delta"]["delta"]["stop_reason"] == "max_tokens"


def test_others_on_the_machine_are_not_answered(server: LocalServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        posted(server, BODY, key="a guess")


async def test_a_second_turn_reads_the_first_one_from_the_cache(server: LocalServer, file: Path) -> None:
    async with talking_to(server) as engine:
        await ask(engine, STORY)
        await ask(engine, "And then?")
        first, second = await engine.records_of(ModelReplied)
        assert len(await engine.records_of(TurnFinished)) == 2
    assert [reply.stop_reason for reply in (first, second)] == ["max_tokens"] * 2
    assert [reply.usage.output_tokens for reply in (first, second)] == [BoundedHost.max_tokens] * 2
    assert second.usage.cache_read_input_tokens >= input_tokens(first.usage)
    assert input_tokens(second.usage) > input_tokens(first.usage) + BoundedHost.max_tokens
    assert {reply.model for reply in (first, second)} == {file.stem}


async def test_a_reply_that_ends_by_itself_says_so(server: LocalServer) -> None:
    async with talking_to(server, max_tokens=200) as engine:
        await ask(engine, "Say yes.")
        (reply,) = await engine.records_of(ModelReplied)
    assert reply.stop_reason == "end_turn"
    assert 0 < reply.usage.output_tokens < 200


async def test_a_conversation_goes_on_after_a_restart_with_what_was_said_before(server: LocalServer) -> None:
    async with talking_to(server) as engine:
        await ask(engine, STORY)
        data = engine.store.image()
    async with talking_to(server, data=data) as engine:
        await ask(engine, "And then?")
        before, after = await engine.records_of(ModelReplied)
        assert [record.turn for record in await engine.records_of(TurnFinished)] == [1, 2]
    assert after.usage.cache_read_input_tokens >= input_tokens(before.usage)  # so its request began with the same bytes


async def test_a_conversation_in_which_another_model_used_tools_can_be_taken_over(server: LocalServer) -> None:
    async with running_engine(calls(use("look", "toolu_1", what="the sea")), says("It is wide.")) as engine:
        await engine.ask("Look at the sea.")
        data = engine.store.image()
    async with talking_to(server, data=data) as engine:
        await ask(engine, "And then?")
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_a_cancel_in_the_middle_of_a_reply_keeps_what_was_said_and_the_conversation(server: LocalServer) -> None:
    async with talking_to(server, max_tokens=900) as engine:
        listener = listen(engine)
        await engine.send(STORY)
        with anyio.fail_after(PATIENT_S):
            await listener.spoke.wait()
        assert await engine.cancel() == 1
        (cancelled,) = await engine.records_of(TurnCancelled)
        assert text_of(cancelled.partial)
        await engine.rested()
        data = engine.store.image()
    async with talking_to(server, data=data) as engine:
        await ask(engine, "Never mind.")
        (finished,) = await engine.records_of(TurnFinished)
        (reply,) = await engine.records_of(ModelReplied)
    assert finished.turn == 2
    assert reply.usage.output_tokens > 0


async def test_two_conversations_at_once_are_both_answered(server: LocalServer) -> None:
    async with talking_to(server) as engine:
        async with anyio.create_task_group() as tasks:
            for key in (KEY, OTHER):
                tasks.start_soon(lambda key: ask(engine, STORY, key=key), key)
        for key in (KEY, OTHER):
            assert await engine.records_of(TurnFailed, key=key) == []
            assert len(await engine.records_of(TurnFinished, key=key)) == 1


async def test_what_does_not_fit_into_its_window_is_told(server: LocalServer) -> None:
    async with talking_to(server) as engine:
        await ask(engine, "sea " * 2 * WINDOW)
        (failure,) = await engine.records_of(TurnFailed)
        await ask(engine, STORY, key=OTHER)
        assert len(await engine.records_of(TurnFinished, key=OTHER)) == 1
    assert failure.code == "model_context_too_long"


async def test_the_window_is_told_by_the_server(server: LocalServer) -> None:
    clock = ManualClock()
    host = LocalHost(server, circuit=Circuit(CircuitOptions(), clock=clock), clock=clock)
    try:
        await host.probe()
        assert await host.window_tokens() == WINDOW
    finally:
        await AnthropicHost.aclose(host)


async def test_a_file_that_cannot_be_loaded_fails_each_turn_and_not_the_start(file: Path, tmp_path: Path) -> None:
    whole = await anyio.Path(file).read_bytes()
    await anyio.Path(tmp_path / "half.gguf").write_bytes(whole[:1_000_000])
    models = ModelRegistry(home=tmp_path, environ={}, clock=ManualClock(), ids=RandomIds(), circuit=CircuitOptions())
    first, second = (models.model({"kind": "local", "path": "half.gguf"}, where="here") for _ in range(2))
    assert isinstance(first, LocalHost)
    assert isinstance(second, LocalHost)
    with capture_logs():
        async with models.opened():
            for host in (first, second):
                with pytest.raises(ModelUnknown, match=r"half\.gguf"):
                    await host.probe()


async def test_a_load_that_is_left_ends_before_the_process_does(file: Path, tmp_path: Path) -> None:
    models = ModelRegistry(home=tmp_path, environ={}, clock=ManualClock(), ids=RandomIds(), circuit=CircuitOptions())
    host = models.model({"kind": "local", "path": str(file), "window_tokens": 256}, where="here")
    assert isinstance(host, LocalHost)
    with anyio.fail_after(PATIENT_S):
        async with models.opened():
            await anyio.lowlevel.checkpoint()
    with pytest.raises(ModelUnknown, match="was closed"):
        await host.probe()


def test_a_file_that_was_only_just_loaded_can_be_closed(file: Path) -> None:
    for _ in range(3):
        server = LocalServer(
            local_options({**LOCAL, "path": str(file), "window_tokens": 256}, home=Path(), where="here"), key="k"
        )
        server.url()
        server.close()
