"""The home that the repository itself is: its tools, and the rehearsal that plays them."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from tests.support.models import Heard, a_request, user
from tests.support.tools import a_context, a_registry, called
from torpor.conversation.view import View
from torpor.model.rehearsal import read_rehearsal, scripted_from
from torpor.model.scripted import ScriptedModel
from torpor.provider_errors import ModelTimedOut, ProviderError, ProviderUnavailable
from torpor.records.blocks import head_of, tool_result_block
from torpor.records.terms import Effect, Outcome
from torpor.toolhost.contract import ToolContext, ToolResult
from torpor.toolhost.declare import Tool
from torpor.toolhost.load import load_tools
from torpor.toolhost.toolbox import LocalToolbox
from torpor.turn.definition import AgentDefinition

HOME = Path(__file__).parents[3]
ADA: dict[str, Any] = {"patient": "Ada Lovelace", "amount": 45.5}


@pytest.fixture(autouse=True)
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data" / "ledger.sqlite3"
    monkeypatch.setenv("CLINIC_LEDGER", str(path))
    return path


@pytest.fixture(scope="module")
def tools() -> dict[str, Tool[..., Any]]:
    loaded = load_tools(HOME / "tools")
    assert loaded.problems == ()
    return {tool.name: tool for tool in loaded.tools}


async def probed(paying: Tool[..., Any], *, idempotency_key: str) -> ToolResult | None:
    arguments = msgspec.Raw(msgspec.json.encode(ADA))
    return await a_registry(paying).toolbox().probe(paying.name, arguments, a_context(idempotency_key=idempotency_key))


def test_one_of_the_tools_writes_and_keeps_its_key(tools: dict[str, Tool[..., Any]]) -> None:
    assert {name: tool.effect for name, tool in tools.items()} == {
        "find_appointments": Effect.READ,
        "opening_hours": Effect.READ,
        "record_payment": Effect.WRITE,
    }
    assert tools["record_payment"].accepts_key
    assert tools["record_payment"].probe_routine is not None


async def test_opening_hours_of_a_day_or_of_the_week(tools: dict[str, Tool[..., Any]]) -> None:
    assert (await called(tools["opening_hours"], {"day": "thursday"})).text == "Thursday: 8:00 to 20:00"
    assert len((await called(tools["opening_hours"])).text.splitlines()) == 7
    assert "`$.day`" in (await called(tools["opening_hours"], {"day": "Caturday"})).text


async def test_appointments_are_found_by_name_and_day(tools: dict[str, Tool[..., Any]]) -> None:
    find = tools["find_appointments"]
    assert len((await called(find)).text.splitlines()) == 8
    assert (await called(find, {"patient": "turing", "day": "monday"})).text == (
        "Monday 10:00, Alan Turing with Dr. Osei: vaccination"
    )
    assert (await called(find, {"patient": "Nobody"})).text == "No appointment was found."


async def test_a_payment_gets_a_receipt_and_a_repeated_call_the_same_one(tools: dict[str, Tool[..., Any]]) -> None:
    pay = tools["record_payment"]
    first = await called(pay, ADA, context=a_context(idempotency_key="a"))
    assert first.text == "Receipt 1: 45.50 euros by cash from Ada Lovelace."
    assert await called(pay, ADA, context=a_context(idempotency_key="a")) == first
    assert (await called(pay, ADA, context=a_context(idempotency_key="b"))).text.startswith("Receipt 2: ")


async def test_much_cash_is_refused_and_nothing_is_kept(tools: dict[str, Tool[..., Any]]) -> None:
    result = await called(tools["record_payment"], {**ADA, "amount": 1000.01})
    assert result.outcome is Outcome.DENIED
    answer = await probed(tools["record_payment"], idempotency_key="key-1")
    assert answer is not None
    assert answer.outcome is Outcome.NEVER_STARTED


@pytest.mark.parametrize("arguments", [{**ADA, "amount": 0}, {**ADA, "amount": -3}, {**ADA, "patient": ""}])
async def test_a_payment_of_nothing_or_by_nobody_is_no_payment(
    tools: dict[str, Tool[..., Any]], ledger: Path, arguments: dict[str, Any]
) -> None:
    assert (await called(tools["record_payment"], arguments)).outcome is Outcome.FAILED
    assert not await anyio.Path(ledger).exists()


async def test_the_ledger_is_for_its_owners_eyes_only(tools: dict[str, Tool[..., Any]], ledger: Path) -> None:
    await called(tools["record_payment"], ADA)
    assert (await anyio.Path(ledger.parent).stat()).st_mode & 0o077 == 0
    assert (await anyio.Path(ledger).stat()).st_mode & 0o777 == 0o600


async def test_a_card_payment_cancelled_at_the_terminal_never_happened(tools: dict[str, Tool[..., Any]]) -> None:
    waiting = anyio.Event()
    context = a_context(idempotency_key="c", report=lambda _: waiting.set())

    async def pay() -> None:
        await called(tools["record_payment"], {**ADA, "method": "card"}, context=context)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pay)
            await waiting.wait()
            tasks.cancel_scope.cancel()
    answer = await probed(tools["record_payment"], idempotency_key="c")
    assert answer is not None
    assert answer.outcome is Outcome.NEVER_STARTED


KILLED = """
import os, signal, sys
import anyio
from pathlib import Path
from tests.support.tools import a_context, called
from torpor.toolhost.load import load_tools

home, moment, arguments = Path(sys.argv[1]), sys.argv[2], {"patient": "Ada Lovelace", "amount": 45.5, "method": "card"}
pay = next(tool for tool in load_tools(home / "tools").tools if tool.name == "record_payment")
names = pay.function.__globals__

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

if moment == "after":
    names["TERMINAL_S"] = 0
    names["_receipt"] = die
report = die if moment == "before" else lambda _: None
async def main():
    await called(pay, arguments, context=a_context(idempotency_key="k", report=report))

anyio.run(main)
"""


@pytest.mark.parametrize(("moment", "outcome"), [("before", Outcome.NEVER_STARTED), ("after", Outcome.SUCCEEDED)])
async def test_a_probe_tells_what_became_of_a_killed_payment(
    tools: dict[str, Tool[..., Any]], moment: str, outcome: Outcome
) -> None:
    command = [sys.executable, "-c", KILLED, str(HOME), moment]
    ended = await anyio.run_process(command, check=False, cwd=HOME, stderr=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    answer = await probed(tools["record_payment"], idempotency_key="k")
    assert answer is not None
    assert answer.outcome is outcome
    if outcome is Outcome.SUCCEEDED:
        assert answer.text == "Receipt 1: 45.50 euros by card from Ada Lovelace."


def the_agent() -> AgentDefinition:
    table = tomllib.loads((HOME / "config" / "agents" / "clinic.toml").read_text())
    return msgspec.convert(table, AgentDefinition)


def test_the_agent_is_offered_what_its_rehearsal_calls(tools: dict[str, Tool[..., Any]]) -> None:
    agent = the_agent()
    assert agent.default
    assert set(agent.tools) <= set(tools)
    rehearsal = read_rehearsal(HOME / "config" / "rehearsals" / "clinic.toml")
    assert rehearsal.tool_names() <= {*agent.tools, *agent.subagents}


class Played:
    """A conversation with the rehearsal, at full speed, its calls really made."""

    def __init__(self, toolbox: LocalToolbox) -> None:
        played = {"kind": "scripted", "rehearsal": the_agent().model["rehearsal"], "pace_cps": 0}
        self._model: ScriptedModel = scripted_from(played, home=HOME, where="clinic.toml")
        self._toolbox = toolbox
        self._view = View()
        self.calls: list[str] = []

    async def say(self, text: str) -> str:
        """The last reply to ``text``."""
        self._view = user(self._view, text)
        while True:
            call = f"{self._view.blocks}-1-1"
            reply = await self._model.reply(a_request(self._view, call=call), Heard())
            self._view = self._view.extended("assistant", reply.blocks)
            heads = [head_of(block) for block in reply.blocks]
            uses = [head for head in heads if head.type == "tool_use"]
            if not uses:
                return "".join(head.text for head in heads)
            results = []
            for use in uses:
                self.calls.append(use.name)
                result = await self._toolbox.call(use.name, use.input, self._context(use.id))
                results.append(tool_result_block(use.id, result.text, is_error=result.outcome is not Outcome.SUCCEEDED))
            self._view = self._view.extended("user", results)

    def _context(self, call_id: str) -> ToolContext:
        return a_context(idempotency_key=call_id)


@pytest.fixture
def played(tools: dict[str, Tool[..., Any]], monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setitem(tools["record_payment"].function.__globals__, "TERMINAL_S", 0)
    return Played(a_registry(*tools.values()).toolbox())


@pytest.mark.parametrize(
    ("text", "calls", "reply"),
    [
        ("Hello!", [], "This is a rehearsal: no language model is behind me"),
        ("When are you open on Thursday?", ["opening_hours"], "Thursday: 8:00 to 20:00"),
        ("opening hours", ["opening_hours"], "Sunday: closed"),
        ("Find the appointments of Ada Lovelace", ["find_appointments"], "Tuesday 14:45, Ada Lovelace"),
        ("appointments for Alan Turing on Thursday, please?", ["find_appointments"], "Thursday 17:30, Alan Turing"),
        ("any appointments for Friday?", ["find_appointments"], "Friday 8:10, Grace Hopper"),
        ("Opening hours and appointments, please", ["opening_hours", "find_appointments"], "Hedy Lamarr"),
        ("Record a payment of 45.50 from Ada Lovelace", ["record_payment"], "Receipt 1: 45.50 euros by cash from Ada"),
        ("Grace Hopper paid 12,50 euros", ["record_payment"], "Receipt 1: 12.50 euros by cash from Grace Hopper."),
        ("take 30 by card from Alan Turing!", ["record_payment"], "30.00 euros by card from Alan Turing."),
        ("a card payment of 2000 euros for Hedy Lamarr", ["record_payment"], "2000.00 euros by card from Hedy Lamarr."),
        ("Record a payment of 2000 from Ada Lovelace", ["record_payment"], "cash is taken up to 1000 euros only"),
        ("Something slow", ["record_payment"], "1.00 euros by card from Ada Lovelace."),
        ("I would like to pay", [], "Who pays, and how much?"),
        ("A long answer", [], "it will not have forgotten a word of this"),
        ("Thank you", [], "You are welcome"),
        ("Colourless green ideas", [], "it has no answer to that"),
    ],
)
async def test_the_rehearsal_answers(played: Played, text: str, calls: list[str], reply: str) -> None:
    assert reply in await played.say(text)
    assert played.calls == calls


async def test_a_payment_of_each_turn_is_a_payment_of_its_own(played: Played) -> None:
    first = await played.say("Record a payment of 10 from Ada Lovelace")
    second = await played.say("Record a payment of 10 from Ada Lovelace")
    assert (first[:9], second[:9]) == ("Receipt 1", "Receipt 2")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("please fail", ProviderUnavailable),
        ("fail at once", ModelTimedOut),
        ("fail again and again", ProviderUnavailable),
    ],
)
async def test_the_rehearsal_fails_on_request(played: Played, text: str, error: type[ProviderError]) -> None:
    with pytest.raises(error, match="as it was asked to"):
        await played.say(text)
