"""What passes with time, on a virtual clock: idleness, pauses, deadlines, grace. Defaults where a test names none."""

from itertools import pairwise

import anyio
import msgspec
import pytest
from trio.testing import MockClock

from tests.support.doubles import Crash, Gate, LoopClock, Play, calls, fails, says, use, waits, writes
from tests.support.engine import KEY, Engine, running_engine
from torpor.errors import NotNow, Unavailable
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.records.commands import CancelTurn, Hibernate
from torpor.records.ids import ConversationKey
from torpor.records.journal import LateResult, ToolFinished, TurnCancelled, TurnFailed, TurnFinished
from torpor.store.contract import Loaded
from torpor.supervisor.options import SupervisorOptions
from torpor.turn.options import TurnOptions

DEFAULTS = SupervisorOptions()
SWEEP_S = DEFAULTS.sweep_s
IDLE_S = DEFAULTS.idle_timeout_s


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, MockClock]]:
    return "trio", {"clock": MockClock(autojump_threshold=0)}


def is_live(engine: Engine, key: ConversationKey = KEY) -> bool:
    return engine.supervisor.live_status(key) is not None


def timed(engine_clock: LoopClock, times: list[float], play: Play) -> Play:
    """``play``, noting when it was asked."""

    async def noted(request: ModelRequest, sink: ReplySink) -> ModelReply:
        times.append(engine_clock.monotonic_s())
        return await play(request, sink)

    return noted


async def test_an_idle_actor_hibernates_after_its_idle_timeout() -> None:
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.ask("hi")
        await anyio.sleep(IDLE_S - SWEEP_S)
        assert is_live(engine)
        await anyio.sleep(2 * SWEEP_S)
        assert not is_live(engine)
        await engine.ask("hello again")
        assert len(await engine.records_of(TurnFinished)) == 2


async def test_an_actor_that_is_asked_something_now_and_then_stays_awake() -> None:
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        for _ in range(5):
            await engine.ask("hi")
            await anyio.sleep(IDLE_S - SWEEP_S)
            assert is_live(engine)


async def test_an_actor_in_a_turn_is_not_idle_however_long_it_takes() -> None:
    gate = Gate()
    async with running_engine(
        waits(gate, says("at last")), clock=LoopClock(), options=DEFAULTS, turn=TurnOptions(model_deadline_s=3 * IDLE_S)
    ) as engine:
        await engine.send("hi")
        await anyio.sleep(2 * IDLE_S)
        gate.opened.set()
        await engine.rested()
        await anyio.sleep(IDLE_S / 2)
        assert is_live(engine)
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_the_sweep_puts_each_conversation_to_sleep_in_its_own_time() -> None:
    other = ConversationKey("acme", "ann", "c_2")
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.ask("hi")
        await anyio.sleep(IDLE_S / 2)
        await engine.ask("hi", key=other)
        await anyio.sleep(IDLE_S / 2 + SWEEP_S)
        assert (is_live(engine), is_live(engine, other)) == (False, True)


async def test_a_sleeping_conversation_leaves_nothing_behind() -> None:
    keys = [ConversationKey("acme", "ann", f"c_{number}") for number in range(50)]
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        for key in keys:
            await engine.ask("hi", key=key)
        assert repr(engine.supervisor) == "<Supervisor s_1 live=50 stopping=False>"
        await anyio.sleep(IDLE_S + SWEEP_S)
        assert repr(engine.supervisor) == "<Supervisor s_1 live=0 stopping=False>"
        assert repr(engine.bus) == "<LocalBus watched=0 live=0>"
        assert all(held.holder == "" for held in engine.store.data.conversations.values())


async def test_an_idle_history_is_packed_into_one_piece_and_goes_on_as_before() -> None:
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.ask("hello" * 200)
        await engine.ask("hi")
        actor = engine.actor(KEY)
        assert actor.journal is not None
        assert len(actor.journal.state.view.chunks) > 1
        await anyio.sleep(DEFAULTS.pack_after_s + SWEEP_S)
        assert len(actor.journal.state.view.chunks) == 1
        await engine.ask("more")
        assert actor.journal.state.view == (await engine.state()).view


async def test_crashes_without_progress_are_answered_by_a_growing_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = LoopClock()
    async with running_engine(clock=clock, options=DEFAULTS) as engine:
        await engine.ask("hi")
        await engine.hibernate()
        original, times = engine.store.load, list[float]()

        async def load(key: ConversationKey, *, use_snapshot: bool = True) -> Loaded:
            times.append(clock.monotonic_s())
            if len(times) < 9:
                raise Crash("bug")
            return await original(key, use_snapshot=use_snapshot)

        monkeypatch.setattr(engine.store, "load", load)
        with pytest.raises(Unavailable):
            await engine.send("again")
        await anyio.sleep(60)
        pauses = [later - earlier for earlier, later in pairwise(times)]
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])
        assert engine.supervisor.live_status(KEY) is not None


async def test_crashes_with_progress_between_them_start_over_with_the_shortest_pause() -> None:
    clock, times = LoopClock(), list[float]()
    plays = [timed(clock, times, fails(Crash("bug"))) for _ in range(3)]
    async with running_engine(*plays, clock=clock, options=DEFAULTS) as engine:
        await engine.insist("hi")
        await anyio.sleep(60)
        assert times == pytest.approx([times[0], times[0] + 0.1, times[0] + 0.2])
        assert [record.code for record in await engine.records_of(TurnFailed)] == ["crashed"]


async def test_what_is_due_is_claimed_when_the_lease_of_its_dead_owner_lapses() -> None:
    clock, gate = LoopClock(), Gate()
    async with running_engine(waits(gate, says("never")), clock=clock, options=DEFAULTS) as engine:
        await engine.send("hi")
        await gate.reached.wait()
        image = engine.store.image()
        async with running_engine(clock=clock, data=image, holder="s_2", options=DEFAULTS) as successor:
            await anyio.sleep(DEFAULTS.lease_ttl_s - SWEEP_S)
            assert await successor.records_of(TurnFinished) == []
            await anyio.sleep(3 * SWEEP_S)
            assert len(await successor.records_of(TurnFinished)) == 1
        engine.supervisor._options = msgspec.structs.replace(DEFAULTS, stop_deadline_s=0.0)


async def test_hibernating_a_running_turn_waits_for_its_end() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("done")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: engine.hibernate(deadline_s=5))
            await anyio.sleep(4)
            gate.opened.set()
        assert not is_live(engine)
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_hibernating_a_turn_that_outlasts_the_deadline_is_refused_and_leaves_it_alone() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("done")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")
        started_s = anyio.current_time()
        with pytest.raises(NotNow, match="turn 1 is still running after 5 s"):
            await engine.supervisor.deliver(KEY, Hibernate(deadline_s=5))
        assert anyio.current_time() - started_s == pytest.approx(5)
        gate.opened.set()
        await engine.rested()
        await anyio.sleep(SWEEP_S)
        assert is_live(engine), "what was refused does not happen later"


async def test_hibernating_a_running_turn_without_a_deadline_is_refused_at_once() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("done")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")
        with pytest.raises(NotNow):
            await engine.supervisor.deliver(KEY, Hibernate())
        gate.opened.set()
        await engine.rested()
        assert is_live(engine)


async def test_hibernating_while_a_cancelled_write_still_runs_waits_for_its_end() -> None:
    async def run(arguments: object, context: object) -> str:
        await anyio.sleep(8)
        return "paid"

    async with running_engine(
        calls(use("pay", "a")), tools=[writes("pay", run)], clock=LoopClock(), options=DEFAULTS
    ) as engine:
        await engine.send("pay")
        await anyio.wait_all_tasks_blocked()
        await engine.supervisor.deliver(KEY, CancelTurn(principal="ann"))
        started_s = anyio.current_time()
        assert await engine.supervisor.deliver(KEY, Hibernate(deadline_s=5)) is True
        assert anyio.current_time() - started_s == pytest.approx(8)
        assert len(await engine.records_of(LateResult)) == 1


@pytest.mark.parametrize(("runs_s", "outcome", "lates"), [(4, "succeeded", 0), (6, "unknown", 1)])
async def test_a_cancelled_write_has_its_grace_and_no_more(runs_s: float, outcome: str, lates: int) -> None:
    async def run(arguments: object, context: object) -> str:
        await anyio.sleep(runs_s)
        return "paid"

    async with running_engine(
        calls(use("pay", "a")), tools=[writes("pay", run)], clock=LoopClock(), turn=TurnOptions(), options=DEFAULTS
    ) as engine:
        heard = engine.watch()
        await engine.send("pay")
        await anyio.wait_all_tasks_blocked()
        started_s = anyio.current_time()
        await engine.supervisor.deliver(KEY, CancelTurn(principal="ann"))
        assert anyio.current_time() - started_s == pytest.approx(min(runs_s, 5.0))
        assert [record.outcome for record in heard.of(ToolFinished)] == [outcome]
        assert len(heard.of(TurnCancelled)) == 1
        await anyio.sleep(10)
        assert len(heard.of(LateResult)) == lates


async def test_a_model_that_says_nothing_for_ten_minutes_fails_the_turn() -> None:
    async with running_engine(waits(Gate(), says("never")), clock=LoopClock(), options=DEFAULTS) as engine:
        heard = engine.watch()
        await engine.send("hi")
        started_s = anyio.current_time()
        await anyio.sleep(599)
        assert heard.of(TurnFailed) == []
        await anyio.sleep(2)
        assert heard.of(TurnFailed)[0].detail == "no complete reply within 600 s"
        assert anyio.current_time() - started_s < 602


async def test_stopping_waits_for_the_running_turn_and_takes_no_more() -> None:
    gate = Gate()
    async with running_engine(waits(gate, says("done")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")

        async def late() -> None:
            await anyio.sleep(3)
            with pytest.raises(Unavailable, match="the server is stopping"):
                engine.post("one more")
            gate.opened.set()

        tasks = engine.lives._tasks
        assert tasks is not None
        tasks.start_soon(late)
        started_s = anyio.current_time()
    assert anyio.current_time() - started_s == pytest.approx(3)
    assert len(engine.store.data.of(KEY).batches) == 2
    assert engine.store.data.of(KEY).holder == ""


async def test_stopping_cuts_off_a_turn_that_outlasts_the_deadline_and_it_goes_on_at_the_next_start() -> None:
    async with running_engine(waits(Gate(), says("never")), clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.send("hi")
        started_s = anyio.current_time()
    assert anyio.current_time() - started_s == pytest.approx(DEFAULTS.stop_deadline_s)
    async with running_engine(data=engine.store.data, clock=LoopClock(), options=DEFAULTS) as engine:
        await engine.rested()
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_stopping_with_everybody_at_rest_takes_no_time() -> None:
    async with running_engine(clock=LoopClock(), options=DEFAULTS) as engine:
        for number in range(5):
            await engine.ask("hi", key=ConversationKey("acme", "ann", f"c_{number}"))
        started_s = anyio.current_time()
    assert anyio.current_time() == started_s
    assert repr(engine.supervisor) == "<Supervisor s_1 live=0 stopping=True>"


async def test_stopping_does_not_wait_for_an_actor_that_pauses_after_a_crash() -> None:
    slow = msgspec.structs.replace(DEFAULTS, restart_backoff_s=4.0)
    gate = Gate()
    async with running_engine(waits(gate, fails(Crash("bug"))), clock=LoopClock(), options=slow) as engine:
        await engine.send("boom")
        gate.opened.set()
        await anyio.wait_all_tasks_blocked()
        waiting = engine.post("and more")
        started_s = anyio.current_time()
    assert anyio.current_time() == started_s
    with pytest.raises(Unavailable):
        await waiting.wait()


async def test_a_server_that_is_cancelled_leaves_at_once() -> None:
    started_s = 0.0
    with anyio.CancelScope() as server:
        async with running_engine(waits(Gate(), says("never")), clock=LoopClock(), options=DEFAULTS) as engine:
            await engine.send("hi")
            reply = engine.post("more")
            started_s = anyio.current_time()
            server.cancel()
            await anyio.sleep_forever()
    assert anyio.current_time() == started_s
    with pytest.raises(Unavailable):
        await reply.wait()
