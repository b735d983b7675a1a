"""Tools from elsewhere in the turns of a conversation: what is offered, and what becomes of calls."""

from collections.abc import Mapping
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from tests.support.doubles import Gate, calls, says, use, waits
from tests.support.engine import DEADLINE_S, KEY, Engine, running_engine
from tests.support.mcp_house import QUICK, lending
from tests.support.mcp_played import Hanging, Life, PlayedServer, echo, hangs, listed, said
from torpor.conversation.budget import Profile
from torpor.flags.contract import Decided, FlagContext, defaulted
from torpor.records.commands import RetractMessage
from torpor.records.ids import MessageId
from torpor.records.journal import LateResult, ToolFinished, ToolStarted, TurnCancelled, TurnFinished
from torpor.records.terms import Outcome
from torpor.toolhost.mcp.elsewhere import McpTools
from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.mcp.servers import Link
from torpor.toolhost.mcp.session import NotSent, Unreachable
from torpor.toolhost.mcp.states import ServerState
from torpor.turn.options import TurnOptions
from torpor.turn.prepare import Surroundings


def offered(engine: Engine, request: int = -1) -> set[str]:
    return {tool["name"] for tool in engine.model.requests[request]["tools"]}


async def ended(engine: Engine) -> list[tuple[Outcome, str]]:
    finished = await engine.records_of(ToolFinished)
    return [(record.outcome, msgspec.json.decode(record.block)["content"]) for record in finished]


class Switched:
    """Implements ``FlagSource``: what is in ``off`` is off."""

    def __init__(self, *off: str) -> None:
        self.off = off

    def decided(self, context: FlagContext) -> Decided:
        return Decided([defaulted(key, default=False, reason="STATIC") for key in self.off])

    async def ask(self, context: FlagContext) -> Decided:
        return self.decided(context)


class Restart:
    """A server that is away once ``begin`` was called, or a call was made, and comes back when ``ready`` is set."""

    def __init__(self, played: PlayedServer, elsewhere: McpTools, *, is_noticed_by_call: bool) -> None:
        self._played = played
        self._connection = elsewhere._servers.connection(Link("lib"))
        self._is_noticed_by_call = is_noticed_by_call
        self.ready = anyio.Event()

    def begin(self) -> None:
        self._played.at_open = self._starts
        if self._is_noticed_by_call:
            self._played.at_call = self._refuses_the_first
        else:
            self._played.life.die()

    async def waited_for(self) -> None:
        """Until a call does."""
        with anyio.fail_after(DEADLINE_S):
            while not self._connection._waiting or self._connection.state is ServerState.UP:
                await anyio.lowlevel.checkpoint()

    async def over(self) -> None:
        self.ready.set()
        with anyio.fail_after(DEADLINE_S):
            while self._connection.generation < 2:
                await anyio.lowlevel.checkpoint()

    async def _starts(self, life: Life) -> None:
        await self.ready.wait()

    async def _refuses_the_first(self, life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        if life.number == 1:
            raise NotSent("nothing answers at its address")
        return await echo(life, tool, arguments)


async def test_tools_are_offered_from_the_first_turn_on_and_called() -> None:
    played = PlayedServer("read", "write")
    async with (
        lending(played, reads=("read",)) as elsewhere,
        running_engine(
            calls(use("lib__read", "a"), use("lib__write", "b")), says("Done."), elsewhere=elsewhere
        ) as engine,
    ):
        await engine.ask("hi")
        assert {"lib__read", "lib__write", "look"} <= offered(engine, 0)
        started = await engine.records_of(ToolStarted)
        assert {record.name: record.effect.value for record in started} == {"lib__read": "read", "lib__write": "write"}
        assert {text for _, text in await ended(engine)} == {"read of life 1", "write of life 1"}


async def test_a_server_that_is_slow_holds_up_a_turn_only_so_long() -> None:
    played = PlayedServer("read")
    ready = anyio.Event()

    async def slow(life: Life) -> None:
        await ready.wait()

    played.at_open = slow
    options = msgspec.structs.replace(QUICK, turn_wait_s=0.01)
    async with (
        lending(played, options=options) as elsewhere,
        running_engine(says("One."), says("Two."), elsewhere=elsewhere) as engine,
    ):
        await engine.ask("hi")
        assert "lib__read" not in offered(engine)
        ready.set()
        await elsewhere.known(KEY, "ann")
        while not elsewhere.lent(KEY, "ann"):
            await anyio.lowlevel.checkpoint()
        await engine.ask("again")
        assert "lib__read" in offered(engine)


@pytest.mark.parametrize("is_taken_back", [False, True])
async def test_a_turn_that_waits_for_a_slow_server_is_cancelled_at_once(is_taken_back: bool) -> None:
    played = PlayedServer("read")
    asked, ready = anyio.Event(), anyio.Event()

    async def slow(life: Life) -> None:
        asked.set()
        await ready.wait()

    played.at_open = slow
    options = msgspec.structs.replace(QUICK, turn_wait_s=3_600.0)
    async with (
        lending(played, options=options) as elsewhere,
        running_engine(says("So."), elsewhere=elsewhere) as engine,
    ):
        await engine.send("one", message_id="m_one")
        await asked.wait()
        if is_taken_back:
            await engine.supervisor.deliver(KEY, RetractMessage(principal="ann", message_id=MessageId("m_one")))
        assert await engine.cancel() == 1
        await engine.rested()
        assert len(await engine.records_of(TurnCancelled)) == (not is_taken_back)
        assert engine.model.requests == []
        ready.set()
        await engine.ask("two")
        assert "lib__read" in offered(engine)
        assert len(await engine.records_of(TurnFinished)) == 1


async def test_tools_of_a_server_that_stays_away_leave_and_come_back() -> None:
    played = PlayedServer("read")
    is_up = True

    async def refuse(life: Life) -> None:
        if not is_up:
            raise Unreachable("gone")

    played.at_open = refuse
    async with (
        lending(played) as elsewhere,
        running_engine(
            says("One."), calls(use("lib__read", "a")), says("Two."), says("Three."), says("Four."), elsewhere=elsewhere
        ) as engine,
    ):
        await engine.ask("one")
        is_up = False
        played.life.die()
        while elsewhere.lent(KEY, "ann"):
            await anyio.lowlevel.checkpoint()
        await engine.ask("two")
        assert "lib__read" not in offered(engine)
        ((outcome, text),) = await ended(engine)
        assert (outcome, "no tool 'lib__read' is offered" in text) == (Outcome.FAILED, True)
        is_up = True
        while not elsewhere.lent(KEY, "ann"):
            await anyio.lowlevel.checkpoint()
        await engine.ask("four")
        assert "lib__read" in offered(engine)


async def test_a_running_turn_keeps_what_it_was_offered() -> None:
    played, gate = PlayedServer("read"), Gate()
    async with (
        lending(played) as elsewhere,
        running_engine(
            waits(gate, calls(use("lib__read", "a"), use("lib__other", "b"))), says("."), says("."), elsewhere=elsewhere
        ) as engine,
    ):
        await engine.send("one")
        await gate.reached.wait()
        played.tools = listed("other")
        played.life.opening.changed()
        while {spec.name for spec in _specs(elsewhere)} != {"lib__other"}:
            await anyio.lowlevel.checkpoint()
        gate.opened.set()
        await engine.rested()
        texts = [text for _, text in await ended(engine)]
        assert any("lib__read is no longer there" in text for text in texts)
        assert any("no tool 'lib__other' is offered" in text for text in texts)
        assert played.calls == []
        assert len({msgspec.json.encode(request["tools"]) for request in engine.model.requests}) == 1
        await engine.ask("two")
        assert "lib__other" in offered(engine)


def _specs(elsewhere: Any) -> Any:
    lent = elsewhere.lent(KEY, "ann")
    return lent.toolbox.specs() if lent is not None else ()


@pytest.mark.parametrize("key", ["mcp.lib", "tool.lib__read"])
async def test_what_a_flag_switches_off_is_neither_offered_nor_called(key: str) -> None:
    played = PlayedServer("read", "write")
    async with (
        lending(played) as elsewhere,
        running_engine(says("."), elsewhere=elsewhere, surroundings=Surroundings(flags=Switched(key))) as engine,
    ):
        await engine.ask("one")
        assert "lib__read" not in offered(engine)
        assert ("lib__write" in offered(engine)) == (key == "tool.lib__read")


async def test_a_server_that_is_switched_off_is_neither_started_nor_waited_for() -> None:
    played, flags = PlayedServer("read"), Switched("mcp.lib")
    options = msgspec.structs.replace(QUICK, turn_wait_s=3_600.0)
    start, played.at_open = played.at_open, hangs
    async with (
        lending(played, options=options) as elsewhere,
        running_engine(
            says("One."), says("Two."), elsewhere=elsewhere, surroundings=Surroundings(flags=flags)
        ) as engine,
    ):
        await engine.ask("one")
        assert played.lives == []
        assert "lib__read" not in offered(engine)
        flags.off, played.at_open = (), start
        await engine.ask("two")
        assert "lib__read" in offered(engine)


@pytest.mark.parametrize("is_noticed_by_call", [False, True])
@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_call_that_waits_for_its_server_is_never_sent_once_its_turn_is_cancelled(
    effect: str, is_noticed_by_call: bool
) -> None:
    played, gate = PlayedServer("act"), Gate()
    async with (
        lending(played, reads=("act",) if effect == "read" else ()) as elsewhere,
        running_engine(
            waits(gate, calls(use("lib__act", "a"))),
            says("So."),
            elsewhere=elsewhere,
            turn=TurnOptions(cancel_grace_s=3_600.0),
        ) as engine,
    ):
        await engine.send("one")
        await gate.reached.wait()
        restart = Restart(played, elsewhere, is_noticed_by_call=is_noticed_by_call)
        restart.begin()
        gate.opened.set()
        await restart.waited_for()
        sent = list(played.calls)
        await engine.cancel()
        await restart.over()
        await engine.ask("two")
        ((outcome, text),) = await ended(engine)
        assert (outcome, "the turn was ended before lib__act started. Nothing was done." in text) == (
            Outcome.NEVER_STARTED,
            True,
        )
        assert played.calls == sent
        assert not await engine.records_of(LateResult)
        await engine.hibernate()  # which waits for calls that were left running


@pytest.mark.parametrize("is_noticed_by_call", [False, True])
@pytest.mark.parametrize("key", ["mcp.lib", "tool.lib__write"])
async def test_a_call_that_waits_for_its_server_is_refused_once_it_is_switched_off(
    key: str, is_noticed_by_call: bool
) -> None:
    played, gate, flags = PlayedServer("write"), Gate(), Switched()
    async with (
        lending(played) as elsewhere,
        running_engine(
            waits(gate, calls(use("lib__write", "a"))),
            says("So."),
            elsewhere=elsewhere,
            surroundings=Surroundings(flags=flags),
        ) as engine,
    ):
        await engine.send("one")
        await gate.reached.wait()
        restart = Restart(played, elsewhere, is_noticed_by_call=is_noticed_by_call)
        restart.begin()
        gate.opened.set()
        await restart.waited_for()
        sent = list(played.calls)
        flags.off = (key,)
        await restart.over()
        await engine.rested()
        assert await ended(engine) == [
            (
                Outcome.DENIED,
                "Not executed: lib__write is switched off. Nothing was done; go on without it.",
            )
        ]
        assert played.calls == sent


async def test_a_turn_that_is_cancelled_cancels_the_call_and_leaves_nobody_at_work() -> None:
    played, hanging = PlayedServer("write"), Hanging()
    played.at_call = hanging
    async with (
        lending(played) as elsewhere,
        running_engine(
            calls(use("lib__write", "a")), elsewhere=elsewhere, turn=TurnOptions(cancel_grace_s=0.0)
        ) as engine,
    ):
        await engine.send("one")
        await hanging.begun.wait()
        await engine.cancel()
        await engine.rested()
        assert await engine.records_of(TurnCancelled)
        ((outcome, _),) = await ended(engine)
        assert outcome is Outcome.UNKNOWN
        (connection,) = elsewhere._servers.standings()
        with anyio.fail_after(DEADLINE_S):
            while elsewhere._servers.statistics().calls:
                await anyio.lowlevel.checkpoint()
        await engine.hibernate()  # which waits for calls that were left running
        assert connection.generation == 1


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_call_that_a_crash_cut_off_is_unknown_or_made_again(effect: str) -> None:
    played, hanging = PlayedServer("act"), Hanging()
    played.at_call = hanging
    reads = ("act",) if effect == "read" else ()
    async with (
        lending(played, reads=reads) as elsewhere,
        running_engine(calls(use("lib__act", "a")), elsewhere=elsewhere) as engine,
    ):
        await engine.send("one")
        await hanging.begun.wait()
        image = engine.store.image()
    again = PlayedServer("act")
    async with (
        lending(again, reads=reads) as elsewhere,
        running_engine(says("So."), elsewhere=elsewhere, data=image) as engine,
    ):
        await engine.rested()
        ((outcome, text),) = await ended(engine)
        assert await engine.records_of(TurnFinished)
        if effect == "read":
            assert (outcome, text) == (Outcome.SUCCEEDED, "act of life 1")
        else:
            assert (outcome, "may or may not have taken effect" in text) == (Outcome.UNKNOWN, True)
            assert again.calls == []


async def test_a_call_that_is_too_late_is_ended_at_its_deadline() -> None:
    played = PlayedServer("read", "write")

    async def slow(life: Life, tool: str, arguments: Mapping[str, Any]) -> Answer:
        if tool == "write":
            await anyio.sleep_forever()
        return said("quick")

    played.at_call = slow
    options = msgspec.structs.replace(QUICK, call_deadline_s=0.05)
    async with (
        lending(played, options=options) as elsewhere,
        running_engine(
            calls(use("lib__write", "a")), calls(use("lib__read", "b")), says("."), elsewhere=elsewhere
        ) as engine,
    ):
        await engine.ask("one")
        (late, (_, quick)) = await ended(engine)
        assert (late[0], "within 0.05 s" in late[1]) == (Outcome.UNKNOWN, True)
        assert quick == "quick"
        played.at_call = echo


async def test_tools_for_which_there_is_no_room_are_left_out_and_the_turn_goes_on() -> None:
    played = PlayedServer()
    played.tools = [
        {"name": f"t{number:02}", "description": "x" * 400, "inputSchema": {"type": "object"}} for number in range(30)
    ]
    async with (
        lending(played) as elsewhere,
        running_engine(says("."), elsewhere=elsewhere, profile=Profile(fixed_tokens=600)) as engine,
    ):
        await engine.ask("one")
        lent = offered(engine) - {"look"}
        assert 0 < len(lent) < 10
        assert "lib__t00" in lent
        assert await engine.records_of(TurnFinished)
