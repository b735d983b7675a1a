"""What belongs to somebody else, what was deleted and what never was: the answer to every frame is the same, byte by
byte, and there are as many frames of it. The table of frames is compared with the protocol's own list."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from tests.support.doubles import says
from tests.support.engine import Engine, running_engine
from tests.support.gateway_line import Line, ManualClock, ports_of, principal
from tests.support.gateway_table import KINDS, NAMELESS, NAMING, names_nothing, on_backends
from torpor.gateway.rules import RULES
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.frames import AnyClientFrame, ClientFrame, Create, Hello, Send, Subscribe, UpdateContext
from torpor.records.ids import ConversationKey

ALICE = "default/alice"
UNKNOWN = "never_was"
FOREIGN = ("at_rest", "asleep", "running", "deleted")
"""Conversations of alice's, by what they are doing."""
OWN = ("deleted",)
MAKING = {Send, Create, UpdateContext}
"""Kinds that make the conversation they name, if the person may."""


def key(name: str) -> ConversationKey:
    return ConversationKey("default", "alice", name)


async def for_ever(request: ModelRequest, sink: ReplySink) -> ModelReply:
    sink.text("I am still")
    await anyio.sleep_forever()
    raise AssertionError("unreachable")


@asynccontextmanager
async def house_of_alice() -> AsyncIterator[Engine]:
    """An engine with a conversation in each of the states."""
    async with running_engine(says("hello"), says("hello"), says("hello"), for_ever) as engine:
        for name in ("at_rest", "asleep", "deleted"):
            await engine.ask("hello", key=key(name))
        await engine.hibernate(key("asleep"))
        await engine.directory.delete(key("deleted"), principal="alice")
        await engine.send("hello", key=key("running"))
        await anyio.wait_all_tasks_blocked()
        yield engine
        await engine.cancel(key("running"))


async def answers(engine: Engine, subject: str, frame: ClientFrame, *, about: str) -> list[str]:
    """Everything that comes back, until nothing happens any more, with the name of the conversation left out."""
    heard: list[str] = []
    async with anyio.create_task_group() as tasks:
        line = Line(ports_of(engine), tasks, clock=ManualClock(), principal=principal(subject))
        line.say(frame)
        await anyio.wait_all_tasks_blocked()
        while (data := line.outbox.take()) is not None:
            heard.append(data.decode().replace(about, "NAME"))
        closing = line.outbox.closing
        line.session.end()
        tasks.cancel_scope.cancel()
    assert closing is None, f"{frame!r} closed the connection: {closing}"
    return heard


def test_every_kind_of_frame_is_in_the_table() -> None:
    assert {*NAMING, *NAMELESS} == set(KINDS), "a line is missing in tests/support/gateway_table.py"
    assert [kind for kind in NAMELESS if not names_nothing(kind)] == []


@pytest.mark.parametrize(("kind", "anyio_backend"), on_backends(NAMING))
async def test_what_is_somebody_elses_is_as_if_it_never_was(kind: type[AnyClientFrame]) -> None:
    async with house_of_alice() as engine:
        unknown = f"{ALICE}/{UNKNOWN}"
        expected = await answers(engine, "bob", NAMING[kind](unknown), about=unknown)
        for name in FOREIGN:
            path = f"{ALICE}/{name}"
            assert await answers(engine, "bob", NAMING[kind](path), about=path) == expected, name

    refusals = [text for text in expected if '"frame":"error"' in text]
    assert len(refusals) == 1
    assert '"unknown_conversation"' in refusals[0] or '"not_permitted"' in refusals[0]
    assert len(expected) == (2 if kind is Hello else 1)


@pytest.mark.parametrize(("kind", "anyio_backend"), on_backends(NAMING))
async def test_an_id_that_somebody_else_uses_is_free_for_anybody(kind: type[AnyClientFrame]) -> None:
    found = []
    for name in (UNKNOWN, *FOREIGN):
        async with house_of_alice() as engine:
            found.append(await answers(engine, "bob", NAMING[kind](name), about=name))

    assert found == [found[0]] * len(found)


@pytest.mark.parametrize(("kind", "anyio_backend"), on_backends([kind for kind in NAMING if kind not in MAKING]))
async def test_what_was_deleted_is_as_if_it_never_was_to_its_owner_too(kind: type[AnyClientFrame]) -> None:
    async with house_of_alice() as engine:
        expected = await answers(engine, "alice", NAMING[kind](UNKNOWN), about=UNKNOWN)
        for name in OWN:
            assert await answers(engine, "alice", NAMING[kind](name), about=name) == expected


@pytest.mark.parametrize(
    ("kind", "anyio_backend"), on_backends([kind for kind in KINDS if kind in RULES and kind is not Subscribe])
)
async def test_nothing_of_anybody_elses_is_told_or_changed(kind: type[AnyClientFrame]) -> None:
    async with house_of_alice() as engine:
        before = {name: await engine.records(key(name)) for name in ("at_rest", "asleep", "running")}
        for name in (*before, "*", "%", "_"):
            frame = NAMING[kind](f"{ALICE}/{name}") if kind in NAMING else NAMELESS[kind]
            said = "".join(await answers(engine, "bob", frame, about=f"{ALICE}/{name}"))
            assert "hello" not in said
            assert "alice" not in said.replace(f"{ALICE}/{name}", "")
        after = {name: await engine.records(key(name)) for name in before}

    assert after == before
