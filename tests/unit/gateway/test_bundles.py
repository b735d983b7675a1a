"""A client reads what a sub-agent of its conversation left, and no other blob, whoever's that is."""

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from tests.support.doubles import calls, says, use
from tests.support.engine import Engine, running_engine
from tests.support.gateway_line import Line, ports_of, principal
from tests.support.gateway_table import REF
from tests.support.gateway_world import World
from tests.support.subagents import spawning, subagent
from torpor.records.frames import ErrorFrame, ReadBundle, Result
from torpor.records.ids import NO_MESSAGE, CallId, ConversationKey
from torpor.records.journal import SubagentFinished, SubagentStarted
from torpor.records.terms import Outcome
from torpor.subagents.findings import Findings
from torpor.subagents.results import Accepted
from torpor.subagents.text import Text
from torpor.supervisor.forking import ForkConversation

CONTENT = {"sources": [{"id": "e1", "title": "Sleep"}]}
KEPT = msgspec.json.encode(CONTENT)
BUNDLE = hashlib.sha256(KEPT).hexdigest()
KEY = ConversationKey("default", "alice", "c1")
Opened = Callable[..., AbstractAsyncContextManager[Line]]


class Kept(Text):
    """Keeps a bundle, whatever was said."""

    def accept(self, text: str, findings: Findings) -> Accepted:
        return msgspec.structs.replace(super().accept(text, findings), kept=KEPT)


@asynccontextmanager
async def house_of_alice() -> AsyncIterator[Engine]:
    """A sub-agent left a bundle in ``c1`` and in ``deleted``, which is deleted, and none in ``c2``."""
    asks = [calls(use("scout", "a", task="look")), says("done")]
    scouts = {"scout": subagent("scout", *[says("found")] * 2, result=Kept())}
    async with running_engine(
        *asks, *asks, says("hello"), says("yes"), tools=[spawning("scout")], subagents=scouts
    ) as engine:
        for name in ("deleted", "c1", "c2"):
            await engine.ask("hello", key=msgspec.structs.replace(KEY, conversation=name))
        await engine.directory.delete(msgspec.structs.replace(KEY, conversation="deleted"), principal="alice")
        yield engine


async def answer(engine: Engine, conversation: str, bundle: str = BUNDLE, *, subject: str = "alice") -> str:
    """The one frame that comes back, with the name that was asked for left out."""
    async with anyio.create_task_group() as tasks:
        line = Line(ports_of(engine), tasks, principal=principal(subject))
        line.say(ReadBundle(ref=REF, conversation=conversation, bundle=bundle))
        heard = await line.hear_bytes()
        line.session.end()
        tasks.cancel_scope.cancel()
    assert heard is not None
    return heard.decode().replace(conversation, "NAME")


async def test_what_a_sub_agent_left_is_read_under_the_name_that_its_end_tells() -> None:
    async with house_of_alice() as engine:
        (finished,) = await engine.records_of(SubagentFinished, key=KEY)
        assert finished.bundle == BUNDLE
        told = msgspec.json.decode(await answer(engine, "c1"))
    assert told["frame"] == "result"
    assert told["rows"] == [{"bundle": BUNDLE, "content": CONTENT}]


async def test_any_other_blob_is_as_if_there_were_none() -> None:
    async with house_of_alice() as engine:
        result = await engine.blobs.put(KEY, b'"a long result"')
        expected = await answer(engine, "never_was")
        assert '"unknown_conversation"' in expected
        assert "no conversation 'NAME' here, or none of its sub-agents left that bundle" in expected
        assert await answer(engine, "c1", result) == expected, "a blob of hers that is no bundle"
        assert await answer(engine, "c1", "0" * 64) == expected, "no blob"
        assert await answer(engine, "c2") == expected, "the bundle of another conversation of hers"
        assert await answer(engine, "deleted") == expected
        for path in ("default/alice/c1", "alice/c1", "c1", "default/alice/never_was"):
            assert await answer(engine, path, subject="bob") == expected, path


async def test_a_bundle_goes_with_its_conversation() -> None:
    async with house_of_alice() as engine:
        expected = await answer(engine, "never_was")
        await engine.directory.delete(KEY, principal="alice")
        assert await answer(engine, "c1") == expected
        assert await engine.blobs.get(KEY, BUNDLE) is None


async def test_a_fork_has_the_bundles_of_what_it_copied_and_keeps_them() -> None:
    async with house_of_alice() as engine:
        await engine.ask("thanks", key=KEY)
        into = msgspec.structs.replace(KEY, conversation="c3")
        fork = ForkConversation(source=KEY, into=into, before=NO_MESSAGE, title="", principal="alice")
        await engine.forks.fork(fork)
        await engine.directory.delete(KEY, principal="alice")
        assert msgspec.json.decode(await answer(engine, "c3"))["rows"][0]["content"] == CONTENT


@pytest.mark.parametrize("bundle", ["", "abc", "A" * 64, "../" * 22, "0" * 63 + "\n", "0" * 65])
async def test_what_is_no_handle_is_refused(bundle: str, world: World, opened: Opened) -> None:
    async with opened() as line:
        line.say(ReadBundle(ref=REF, conversation="c1", bundle=bundle))
        error = await line.hear_a(ErrorFrame)
    assert (error.code, error.ref) == ("bad_frame", REF)


def leave(world: World, content: bytes) -> str:
    handle = hashlib.sha256(content).hexdigest()
    world.bundles[handle] = content
    call = CallId("a")
    world.commit(
        KEY,
        SubagentStarted(call_id=call, name="scout", child="x"),
        SubagentFinished(call_id=call, name="scout", child="x", outcome=Outcome.SUCCEEDED, bundle=handle),
    )
    return handle


async def test_one_that_is_longer_than_an_answer_may_be_is_told_so(world: World, opened: Opened) -> None:
    fits, long = leave(world, b'"%s"' % (b"x" * 98)), leave(world, b'"%s"' % (b"x" * 99))
    async with opened(result_bytes_max=100) as line:
        line.say(ReadBundle(ref=REF, conversation="c1", bundle=fits))
        assert (await line.hear_a(Result)).rows[0]["content"] == "x" * 98
        line.say(ReadBundle(ref=REF, conversation="c1", bundle=long))
        error = await line.hear_a(ErrorFrame)
    assert (error.code, error.message) == (
        "too_long",
        "bundle has 101 bytes, expected at most 100, see gateway.result_bytes_max",
    )


async def test_one_that_went_in_between_is_not_there_and_the_log_says_so(world: World, opened: Opened) -> None:
    handle = leave(world, b"{}")
    world.bundles.clear()
    with capture_logs() as logs:
        async with opened() as line:
            line.say(ReadBundle(ref=REF, conversation="c1", bundle=handle))
            assert (await line.hear_a(ErrorFrame)).code == "unknown_conversation"
    assert [log["bundle"] for log in logs if log["event"] == "gateway.bundle_missing"] == [handle]
