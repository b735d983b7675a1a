"""What operators are answered when they have an owner forgotten, and what nobody else may ask."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.support.doubles import says
from tests.support.engine import Engine, running_engine
from tests.support.gateway_line import Line, ManualClock, ports_of, principal
from torpor.records.frames import ErrorFrame, ForgetOwner, InspectConversation, Result
from torpor.records.ids import ConversationKey

OPERATOR = {"scopes": ("chat", "operator")}


def key(tenant: str, owner: str, number: int = 1) -> ConversationKey:
    return ConversationKey(tenant, owner, f"c{number}")


@asynccontextmanager
async def line_of(engine: Engine, **more: Any) -> AsyncIterator[Line]:
    async with anyio.create_task_group() as tasks:
        line = Line(ports_of(engine), tasks, clock=ManualClock(), principal=principal("root", **more))
        yield line
        line.session.end()
        tasks.cancel_scope.cancel()


async def row(line: Line, frame: ForgetOwner) -> dict[str, Any]:
    line.say(frame)
    (told,) = (await line.hear_a(Result)).rows
    return told


async def test_an_owner_is_forgotten_a_few_conversations_at_a_time() -> None:
    async with running_engine(*[says("yes")] * 4) as engine, line_of(engine, **OPERATOR) as line:
        for number in range(3):
            await engine.ask("hello", key=key("default", "ann", number))
        await engine.ask("hello", key=key("default", "bob"))
        counted = await row(line, ForgetOwner(ref="r", owner="ann", dry_run=True))
        assert (counted["conversations"], counted["left"]) == (3, 3)
        told = [await row(line, ForgetOwner(ref="r", owner="ann", limit=2)) for _ in range(3)]
        assert [(each["conversations"], each["left"]) for each in told] == [(2, 1), (1, 0), (0, 0)]
        assert sum(each["records"] for each in told) == counted["records"]
        assert not any(each["lingers"] for each in told)
        rows = await engine.store.list_conversations(tenant=None, owner=None, limit=9)
        assert [each.key for each in rows] == [key("default", "bob")]


async def test_an_owner_of_another_tenant_is_named_with_it() -> None:
    async with running_engine(*[says("yes")] * 2) as engine, line_of(engine, **OPERATOR) as line:
        await engine.ask("hello", key=key("acme", "ann"))
        await engine.ask("hello", key=key("default", "ann"))
        assert (await row(line, ForgetOwner(ref="r", owner="acme/ann")))["conversations"] == 1
        rows = await engine.store.list_conversations(tenant=None, owner=None, limit=9)
        assert [each.key for each in rows] == [key("default", "ann")]


@pytest.mark.parametrize("name", ["", "/", "a/b/c", "a b", "ann/", "/ann", "a\n", "x" * 129, "\u202e"])
async def test_what_is_no_name_forgets_nobody(name: str) -> None:
    async with running_engine(says("yes")) as engine, line_of(engine, **OPERATOR) as line:
        await engine.ask("hello", key=key("default", "root"))
        line.say(ForgetOwner(ref="r", owner=name))
        error = await line.hear_a(ErrorFrame)
        assert (error.code, error.ref) == ("bad_frame", "r")
        assert engine.directory.statistics().erased["forgotten"] == 0


async def test_nobody_forgets_without_the_scope_not_even_themselves() -> None:
    async with running_engine(says("yes")) as engine, line_of(engine) as line:
        await engine.ask("hello", key=key("default", "root"))
        for is_dry in (True, False):
            line.say(ForgetOwner(ref="r", owner="root", dry_run=is_dry))
            assert (await line.hear_a(ErrorFrame)).code == "not_permitted"
        assert await engine.store.describe(key("default", "root")) is not None


async def test_operators_too_find_no_trace_in_frames() -> None:
    async with running_engine(says("yes")) as engine, line_of(engine, **OPERATOR) as line:
        await engine.ask("hello", key=key("default", "ann"))
        await row(line, ForgetOwner(ref="r", owner="ann"))
        said = []
        for number in (1, 2):
            line.say(InspectConversation(ref="r", path=f"default/ann/c{number}"))
            said.append(repr(await line.hear_a(ErrorFrame)).replace(f"c{number}", "NAME"))
        assert said[0] == said[1]
