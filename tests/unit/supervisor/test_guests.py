"""Commands for conversations that may not exist: refused without taking anybody's place, and nothing of them stays."""

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import Gate, says, waits
from tests.support.engine import DEADLINE_S, KEY, QUICK, Engine, running_engine
from torpor.actor.mailbox import PendingReply
from torpor.errors import Busy, NothingToCancel, TorporError, UnknownAgent
from torpor.records.commands import (
    ArchiveConversation,
    CancelTurn,
    Command,
    Hibernate,
    RefreshLiveContext,
    RenameConversation,
    RetractMessage,
)
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import TurnFinished
from torpor.store.contract import DirectoryRow, Lease

STILL = msgspec.structs.replace(QUICK, sweep_s=3_600.0, live_max=2)
"""Nothing happens by itself but at the start."""
REAL = [ConversationKey("acme", "ann", f"real_{number}") for number in range(2)]
UNKNOWN = ConversationKey("acme", "ann", "unknown")
CANCEL = CancelTurn(principal="ann")
COMMANDS: list[Command] = [
    CANCEL,
    RenameConversation(principal="ann", title="Visits"),
    ArchiveConversation(principal="ann"),
    RetractMessage(principal="ann", message_id=MessageId("m")),
    RefreshLiveContext(),
    Hibernate(),
]


async def code_of(reply: PendingReply) -> str:
    """Of the error that it was answered with; empty for none."""
    with anyio.fail_after(DEADLINE_S):
        try:
            await reply.wait()
        except TorporError as exc:
            return exc.code
    return ""


async def alone(engine: Engine) -> None:
    """Only the real ones live, as they did, and nothing was written of any other."""
    await anyio.wait_all_tasks_blocked()
    assert engine.living() == REAL
    statistics = engine.supervisor.statistics()
    assert statistics.live["idle"] == len(REAL)
    assert set(statistics.hibernations.values()) == {0}
    assert {key for key, found in engine.store.data.conversations.items() if found.batches} == set(REAL)
    assert not engine.store.snapshots


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
async def test_a_command_for_an_unknown_conversation_leaves_nothing_behind(command: Command) -> None:
    async with running_engine(options=STILL) as engine:
        for key in REAL:
            await engine.ask("hi", key=key)
        for number in range(50):
            await code_of(engine.supervisor.post(ConversationKey("acme", "ann", f"unknown_{number}"), command))
        await alone(engine)


async def test_a_thousand_cancels_of_unknown_conversations_at_once_push_nobody_out() -> None:
    told: list[str] = []
    async with running_engine(options=STILL) as engine:
        for key in REAL:
            await engine.ask("hi", key=key)

        async def cancel(number: int) -> None:
            try:
                reply = engine.supervisor.post(ConversationKey("acme", "ann", f"unknown_{number}"), CANCEL)
            except Busy as busy:
                told.append(busy.code)
            else:
                told.append(await code_of(reply))

        async with anyio.create_task_group() as tasks:
            for number in range(1_000):
                tasks.start_soon(cancel, number)
        assert len(told) == 1_000
        assert set(told) == {"nothing_to_cancel", "busy"}
        await alone(engine)


async def test_a_message_that_is_refused_leaves_nothing_behind() -> None:
    async with running_engine(options=STILL) as engine:
        for number in range(3):
            with pytest.raises(UnknownAgent):
                await engine.send("hi", key=ConversationKey("acme", "ann", f"c_{number}"), agent="nobody")
        await anyio.wait_all_tasks_blocked()
        assert not engine.living()
        await engine.ask("hi")


async def test_a_first_message_that_comes_while_it_leaves_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_engine(options=STILL) as engine:
        gate, release = Gate(), engine.store.release

        async def slow(lease: Lease) -> None:
            if not gate.reached.is_set():
                await gate.passed()
            await release(lease)

        monkeypatch.setattr(engine.store, "release", slow)
        with pytest.raises(NothingToCancel):
            await engine.cancel()
        with anyio.fail_after(DEADLINE_S):
            await gate.reached.wait()
        reply = engine.post("hi")
        gate.opened.set()
        assert await code_of(reply) == ""
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1
        assert engine.supervisor.live_status(KEY) is not None


@pytest.mark.parametrize("command", [CANCEL, Hibernate()], ids=["cancel", "hibernate"])
async def test_a_first_message_is_answered_whenever_it_comes(command: Command) -> None:
    async with running_engine(options=STILL) as engine:
        for checkpoints in range(60):
            key = ConversationKey("acme", "ann", f"c_{checkpoints}")
            asked = engine.supervisor.post(key, command)
            for _ in range(checkpoints):
                await anyio.lowlevel.checkpoint()
            reply = engine.post("hi", key=key)
            assert await code_of(asked) in {"", "nothing_to_cancel"}
            assert await code_of(reply) == ""
            await engine.rested(key)
            assert len(await engine.records_of(TurnFinished, key=key)) == 1
        await anyio.wait_all_tasks_blocked()
        assert len(engine.living()) <= STILL.live_max


async def test_one_that_exists_takes_the_place_of_another() -> None:
    async with running_engine(options=STILL) as engine:
        for key in (KEY, *REAL):
            await engine.ask("hi", key=key)
        assert await code_of(engine.supervisor.post(KEY, CANCEL)) == "nothing_to_cancel"
        await anyio.wait_all_tasks_blocked()
        assert set(engine.living()) == {KEY, REAL[1]}


async def test_one_that_exists_finds_no_place_while_all_others_run() -> None:
    gates = [Gate(), Gate()]
    plays = [says("hello"), *(waits(gate, says("done")) for gate in gates)]
    async with running_engine(*plays, options=STILL) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        for key, gate in zip(REAL, gates, strict=True):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        assert await code_of(engine.supervisor.post(KEY, RenameConversation(principal="ann", title="Visits"))) == "busy"
        assert await code_of(engine.supervisor.post(UNKNOWN, CANCEL)) == "nothing_to_cancel"
        await anyio.wait_all_tasks_blocked()
        assert set(engine.living()) == set(REAL)
        assert engine.supervisor.statistics().refused["live"] == 1
        for gate in gates:
            gate.opened.set()
        for key in REAL:
            await engine.rested(key)


async def test_a_message_behind_a_command_that_took_no_place_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    running, described = [Gate(), Gate()], Gate()
    async with running_engine(*(waits(gate, says("done")) for gate in running), options=STILL) as engine:
        for key, gate in zip(REAL, running, strict=True):
            await engine.send("hi", key=key)
            await gate.reached.wait()
        describe = engine.store.describe

        async def slow(key: ConversationKey) -> DirectoryRow | None:
            row = await describe(key)
            await described.passed()
            return row

        monkeypatch.setattr(engine.store, "describe", slow)
        asked = engine.supervisor.post(KEY, CANCEL)
        with anyio.fail_after(DEADLINE_S):
            await described.reached.wait()
        with pytest.raises(Busy):
            engine.post("hi")
        for gate in running:
            gate.opened.set()
        for key in REAL:
            await engine.rested(key)
        reply = engine.post("hi")
        described.opened.set()
        assert (await code_of(asked), await code_of(reply)) == ("nothing_to_cancel", "")
        await engine.rested()
        await anyio.wait_all_tasks_blocked()
        assert KEY in engine.living()
        assert len(engine.living()) == STILL.live_max


async def test_one_that_is_begun_elsewhere_on_its_way_may_make_room_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_engine(options=STILL) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        describe = engine.store.describe

        async def none_yet(key: ConversationKey) -> DirectoryRow | None:
            return None if key == KEY else await describe(key)

        monkeypatch.setattr(engine.store, "describe", none_yet)
        assert await code_of(engine.supervisor.post(KEY, CANCEL)) == "nothing_to_cancel"
        assert engine.supervisor.live_status(KEY) is not None
        for key in REAL:
            await engine.ask("hi", key=key)
        await anyio.wait_all_tasks_blocked()
        assert engine.living() == REAL
