"""Conversations that are not kept any longer go, those that somebody uses stay; a look that fails is not the last."""

from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from tests.support.doubles import says
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from torpor.errors import StoreUnavailable, Unavailable
from torpor.records.commands import RenameConversation
from torpor.records.ids import ConversationKey
from torpor.records.journal import TurnFinished
from torpor.store.contract import Cause, QuarantineKind
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retention import Retired
from torpor.supervisor.retiring import Retiring

NEWEST = RetentionOptions(per_owner_max=1, pause_s=0.0, look_s=0.001)
BOB = ConversationKey("acme", "bob", "c_1")


def key(number: int) -> ConversationKey:
    return ConversationKey("acme", "ann", f"c_{number}")


async def fill(engine: Engine, *keys: ConversationKey) -> None:
    """A conversation at rest for each, the first one the oldest."""
    for each in keys:
        await engine.ask("hello", key=each)
        await engine.hibernate(each)
        engine.clock.advance(1.0)  # type: ignore[attr-defined]


async def left(engine: Engine) -> list[str]:
    rows = await engine.store.list_conversations(tenant=None, owner=None, limit=99)
    return [f"{row.key.owner}/{row.key.conversation}" for row in rows]


def retiring(engine: Engine, options: RetentionOptions = NEWEST, **given: Any) -> Retiring:
    return Retiring(engine.directory, store=engine.store, clock=engine.clock, options=options, **given)


async def test_the_oldest_go_and_other_owners_are_counted_by_themselves() -> None:
    async with running_engine(*[says("yes")] * 4) as engine:
        await fill(engine, key(3), BOB, key(1), key(2))
        heard = engine.watch(key(3))
        with capture_logs() as logs:
            assert await retiring(engine).look() == 2
        assert await left(engine) == ["ann/c_2", "bob/c_1"]
        assert heard.is_gone
        told = [log for log in logs if log["event"] == "conversation.retired"]
        assert [(log["tenant"], log["cause"]) for log in told] == [("acme", "count")] * 2
        assert engine.directory.statistics().erased["count"] == 2
        assert await retiring(engine).look() == 0


async def test_age_is_told_by_the_clock() -> None:
    async with running_engine(says("yes")) as engine:
        await fill(engine, KEY)
        looks = retiring(engine, RetentionOptions(age_days=2, pause_s=0.0))
        engine.clock.advance(86_400.0)  # type: ignore[attr-defined]
        assert await looks.look() == 0
        engine.clock.advance(86_400.0)  # type: ignore[attr-defined]
        assert await looks.look() == 1


async def test_what_has_an_actor_stays_until_that_sleeps() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        await fill(engine, key(1), key(2))
        await engine.wake(key(1))
        assert await retiring(engine).look() == 0
        await engine.hibernate(key(1))
        assert await retiring(engine).look() == 1


async def test_what_is_quarantined_stays_for_the_operator() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        await fill(engine, key(1), key(2))
        await engine.store.quarantine(key(1), reason="odd", kind=QuarantineKind.JOURNAL)
        assert await retiring(engine).look() == 0


async def test_what_changed_since_it_was_judged_stays() -> None:
    async with running_engine(says("yes")) as engine:
        await fill(engine, KEY)
        row = await engine.store.describe(KEY)
        assert row is not None
        await engine.supervisor.deliver(KEY, RenameConversation(principal="ann", title="wanted"))
        await engine.hibernate()
        with pytest.raises(Unavailable, match="is used again"):
            await engine.directory.retire(Retired(row=row, cause=Cause.AGE))
        assert await left(engine) == ["ann/c_1"]


async def test_a_message_that_comes_right_then_is_not_lost() -> None:
    async with running_engine(says("yes"), says("again")) as engine:
        await fill(engine, KEY)
        row = await engine.store.describe(KEY)
        assert row is not None
        async with anyio.create_task_group() as tasks:

            async def retire() -> None:
                assert not await engine.directory.retire(Retired(row=row, cause=Cause.AGE))

            reply = engine.post("hello again")
            tasks.start_soon(retire)
            await reply.wait()
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_it_looks_again_and_a_look_that_fails_is_not_the_last() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        await fill(engine, key(1), key(2))
        erase, failures = engine.store.erase, [StoreUnavailable("lost"), RuntimeError("a bug")]

        async def fail(*given: Any, **named: Any) -> Any:
            if failures:
                raise failures.pop()
            return await erase(*given, **named)

        engine.store.erase = fail  # type: ignore[method-assign]
        with anyio.fail_after(DEADLINE_S):
            async with retiring(engine).running():
                while await left(engine) != ["ann/c_2"]:
                    await anyio.lowlevel.checkpoint()
        assert not failures
        assert engine.directory.statistics().failures == 2


async def test_nothing_is_begun_once_the_server_stops() -> None:
    async with running_engine(*[says("yes")] * 2) as engine:
        await fill(engine, key(1), key(2))
        assert await retiring(engine, may_go_on=lambda: False).look() == 0


async def test_where_everything_is_kept_nobody_looks() -> None:
    async with running_engine(says("yes")) as engine:
        await fill(engine, KEY)

        async def fail(**_: object) -> Any:
            raise AssertionError("somebody looked")

        engine.store.list_conversations = fail  # type: ignore[method-assign]
        async with retiring(engine, RetentionOptions(look_s=0.001)).running():
            await anyio.wait_all_tasks_blocked()
