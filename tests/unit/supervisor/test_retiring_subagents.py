"""What sub-agents wrote goes some days after they ended; what their conversation says of them, and the bundle, stay."""

import anyio
import msgspec

from tests.support.doubles import Gate, calls, says, use, waits
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, running_engine
from tests.support.subagents import spawning, subagent
from tests.support.writing import put
from torpor.errors import Fenced
from torpor.records.blocks import tool_result_block
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import JournalRecord, SubagentFinished, ToolFinished
from torpor.records.terms import Outcome
from torpor.store.contract import Lease, QuarantineKind
from torpor.subagents.definition import Subagent
from torpor.subagents.findings import Findings
from torpor.subagents.results import Accepted
from torpor.subagents.text import Text
from torpor.supervisor.options import RetentionOptions
from torpor.supervisor.retiring import Retiring

DAY_S = 86_400.0
AWAKE = msgspec.structs.replace(QUICK, idle_timeout_s=30 * DAY_S)
"""Actors stay where they are while days go by."""
BUNDLE = b'{"kept":true}'


class Kept(Text):
    """Keeps a bundle, whatever was said."""

    def accept(self, text: str, findings: Findings) -> Accepted:
        return msgspec.structs.replace(super().accept(text, findings), kept=BUNDLE)


def scout(*texts: str) -> dict[str, Subagent]:
    return {"scout": subagent("scout", *[says(text) for text in texts or ("here it is",)], result=Kept())}


async def spawn(engine: Engine) -> SubagentFinished:
    """Have a sub-agent work for a turn that ends."""
    await engine.insist("where is it?")
    await engine.rested()
    return (await engine.records_of(SubagentFinished))[-1]


def retiring(engine: Engine, *, days: float = 7.0) -> Retiring:
    options = RetentionOptions(pause_s=0.0, look_s=0.001)
    return Retiring(engine.directory, store=engine.store, clock=engine.clock, options=options, subagents_days=days)


def later(engine: Engine, days: float) -> None:
    engine.clock.advance(days * DAY_S)  # type: ignore[attr-defined]


async def children(engine: Engine) -> list[ConversationKey]:
    return [row.key for row in await engine.store.children(KEY, limit=9)]


async def retired(engine: Engine) -> None:
    """Look until all are gone: an actor that leaves just then has them wait for the next look."""
    with anyio.fail_after(DEADLINE_S):
        while await children(engine):
            await retiring(engine).look()


async def keep_result(engine: Engine, key: ConversationKey, data: bytes) -> str:
    """Have a sub-agent's journal name a blob of its own."""
    handle = await engine.blobs.put(key, data)
    head, call = await engine.store.head(key), CallId("long")
    record: JournalRecord = ToolFinished(
        seq=head.seq + 1,
        event=head.event + 1,
        at_us=engine.clock.now_us(),
        call_id=call,
        name="look",
        outcome=Outcome.SUCCEEDED,
        block=tool_result_block(call, "long", is_error=False),
        handle=handle,
    )
    fence = engine.store.data.of(KEY).fence
    await put(engine.store, Lease(key=key, holder="s_1", fence=fence, expires_us=0), [record])
    return handle


async def test_what_a_sub_agent_wrote_goes_after_its_days_and_what_is_said_of_it_stays() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout()) as engine:
        finished = await spawn(engine)
        (child,) = await children(engine)
        handle = await keep_result(engine, child, b"of its own")
        before = await engine.records()
        later(engine, 7.0)
        await retiring(engine).look()
        assert await children(engine) == [child]
        later(engine, 0.1)
        await retired(engine)
        assert await engine.records() == before
        assert await engine.blobs.get(KEY, handle) is None
        assert await engine.blobs.get(KEY, finished.bundle) == BUNDLE
        assert engine.directory.statistics().subagents == 1
        await engine.directory.delete(KEY, principal="ann")
        assert await engine.blobs.get(KEY, finished.bundle) is None


async def test_a_conversation_that_lives_goes_on_undisturbed() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done"), says("again")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout(), options=AWAKE) as engine:
        await spawn(engine)
        heard = engine.watch()
        later(engine, 8.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retiring(engine).look)
            await engine.insist("and now?")
        await engine.rested()
        await retired(engine)
        assert not heard.is_gone
        assert engine.supervisor.statistics().thaws == 1
        assert engine.supervisor.statistics().crashes == 0


async def test_so_does_one_that_sleeps_and_is_woken_meanwhile() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done"), says("again")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout()) as engine:
        await spawn(engine)
        await engine.hibernate()
        later(engine, 8.0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(retiring(engine).look)
            await engine.insist("and now?")
        await engine.rested()
        await retired(engine)
        assert engine.supervisor.statistics().crashes == 0


async def test_while_a_turn_runs_its_sub_agents_stay() -> None:
    gate = Gate()
    plays = [calls(use("scout", "a", task="look")), says("done")]
    scouts = {"scout": subagent("scout", waits(gate, says("found")))}
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scouts) as engine:
        await engine.insist("where is it?")
        await gate.reached.wait()
        await anyio.wait_all_tasks_blocked()  # what was handed over has landed
        later(engine, 8.0)
        await retiring(engine).look()
        assert len(await children(engine)) == 1
        gate.opened.set()
        await engine.rested()
        assert (await engine.records_of(SubagentFinished))[0].outcome is Outcome.SUCCEEDED


async def test_what_is_deleted_while_they_work_leaves_nothing_of_them() -> None:
    gate = Gate()
    plays = [calls(use("scout", "a", task="look"))]
    scouts = {"scout": subagent("scout", waits(gate, says("found")), result=Kept())}
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scouts) as engine:
        await engine.insist("where is it?")
        await gate.reached.wait()
        await anyio.wait_all_tasks_blocked()  # what was handed over has landed
        (child,) = await children(engine)
        await engine.directory.delete(KEY, principal="ann")
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        for key in (KEY, child):
            assert await engine.store.describe(key) is None
        assert await engine.blobs.stored(KEY) == ()


async def test_whoever_is_forgotten_leaves_nothing_of_them() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout()) as engine:
        await spawn(engine)
        (child,) = await children(engine)
        await keep_result(engine, child, b"of its own")
        survey = await engine.directory.survey(tenant=KEY.tenant, owner=KEY.owner)
        assert (survey.conversations, survey.blobs) == (1, 2)
        forgotten = await engine.directory.forget(tenant=KEY.tenant, owner=KEY.owner, limit=9, principal="ann")
        assert (forgotten.conversations, forgotten.blobs, forgotten.left) == (1, 2, 0)
        assert await engine.store.describe(child) is None
        assert await engine.blobs.stored(KEY) == ()


async def test_a_quarantined_conversation_keeps_them_for_the_operator() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout()) as engine:
        await spawn(engine)
        await engine.supervisor.quarantine(KEY, reason="odd", kind=QuarantineKind.OPERATOR)
        later(engine, 8.0)
        await retiring(engine).look()
        assert len(await children(engine)) == 1


async def test_those_that_stay_do_not_keep_the_others() -> None:
    number = 70
    """More than are looked at at once."""
    other = msgspec.structs.replace(KEY, conversation="c_2")
    async with running_engine(says("hello"), says("hello")) as engine:
        await engine.ask("hello")
        await engine.ask("hello", key=other)
        for parent, count in ((KEY, number), (other, 1)):
            lease = Lease(key=parent, holder="s_1", fence=engine.store.data.of(parent).fence, expires_us=0)
            for each in range(count):
                child = parent.child(f"x{each}")
                records = (await engine.records(parent))[:2]
                await put(engine.store, msgspec.structs.replace(lease, key=child), records)
        await engine.supervisor.quarantine(KEY, reason="odd", kind=QuarantineKind.OPERATOR)
        later(engine, 8.0)
        with anyio.fail_after(DEADLINE_S):
            while await engine.store.children(other, limit=9):
                await retiring(engine).look()
        assert len(await engine.store.children(KEY, limit=99)) == number


async def test_one_whose_lease_is_lost_in_between_is_left_for_the_next_look() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout(), options=AWAKE) as engine:
        await spawn(engine)
        later(engine, 8.0)
        erase, tried = engine.store.erase, []

        async def fenced(lease: Lease, **_: object) -> object:
            tried.append(lease.key)
            raise Fenced(KEY.path, fence=1, newer=2)

        engine.store.erase = fenced  # type: ignore[assignment,method-assign]
        await retiring(engine).look()
        assert tried == await children(engine)
        assert len(tried) == 1
        engine.store.erase = erase  # type: ignore[method-assign]
        await retired(engine)


async def test_with_no_days_they_are_kept_for_ever() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout()) as engine:
        await spawn(engine)
        later(engine, 800.0)
        await retiring(engine, days=0.0).look()
        assert len(await children(engine)) == 1


async def test_a_server_looks_for_them_even_where_all_conversations_are_kept() -> None:
    plays = [calls(use("scout", "a", task="look")), says("done")]
    async with running_engine(*plays, tools=[spawning("scout")], subagents=scout()) as engine:
        await spawn(engine)
        later(engine, 8.0)
        with anyio.fail_after(DEADLINE_S):
            async with retiring(engine).running():
                while await children(engine):
                    await anyio.lowlevel.checkpoint()
