"""Tools of a real MCP server in the turns of a real server: offered, called, switched off, lost and found again."""

import sys
from pathlib import Path

import pytest

from tests.integration.home.houses import Home, House, kinds, living, results_in, tool_names
from tests.support.doubles import Gate, calls, says, use, waits
from tests.support.mcp_ledger import McpLedger

SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a gateway."""
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.settings(mcp={"backoff_s": 0.05, "relist_pause_s": 0.0, "turn_wait_s": 30.0})
    home.agent(mcp=["odd"])
    serve(home)
    return home


def serve(home: Home, *arguments: str, **more: str) -> None:
    args = ", ".join(f'"{argument}"' for argument in (str(SERVER), str(home.path / "ledger.txt"), *arguments))
    rest = "".join(f"{key} = {value}\n" for key, value in more.items())
    text = f'[mcp.odd]\ncommand = "{sys.executable}"\nargs = [{args}]\ntrust_read_only = true\n{rest}'
    (home.path / "config" / "mcp.toml").write_text(text)


def ledger(home: Home) -> McpLedger:
    return McpLedger(home.path / "ledger.txt")


async def outcomes(house: House) -> list[str]:
    return [record["outcome"] for record in await house.records("tool_finished")]


async def test_tools_of_a_server_live_through_a_day(home: Home) -> None:
    """One server for all of it, since each takes seconds to start."""
    async with living(home) as house:
        await offered_and_called(house)
        await switched_off_in_mid_turn(house, home)
        await changed_and_offered_anew(house)
        await lost_and_found_again(house)
        await cancelled(house, home)
        await told_in_few_words(house)
    assert ledger(home).lines().count("wrote one") == 1
    assert "wrote two" not in ledger(home).lines()
    assert ledger(home).alive() == set()


async def offered_and_called(house: House) -> None:
    uses = (use("odd__look", "a", words="hi"), use("odd__write_down", "b", words="one"), use("odd__fail", "c"))
    house.model.then(calls(*uses), says("Done."))
    await house.ask("look")
    assert "odd__look" in tool_names(house.model.requests[0])
    assert await house.results() == ["seen hi", "written", "Error executing tool fail"]
    started = {record["name"]: record["effect"] for record in await house.records("tool_started")}
    assert started == {"odd__look": "read", "odd__write_down": "write", "odd__fail": "write"}


async def switched_off_in_mid_turn(house: House, home: Home) -> None:
    """Refused at once, and gone from the next turn's schemas."""
    gate = Gate()
    house.model.then(waits(gate, calls(use("odd__write_down", "d", words="two"))), says("Oh."))
    message = await house.say("write")
    await gate.reached.wait()
    await house.after("flags.changed", lambda: home.flags(mcp__odd=False))
    gate.opened.set()
    await house.ended(message)
    assert "odd__write_down is switched off" in (await house.results())[0]
    house.model.then(says("Nothing."))
    await house.ask("and now")
    assert not any(name.startswith("odd__") for name in tool_names(house.model.requests[-1]))
    await house.after("flags.changed", lambda: home.flags(mcp__odd=True))


async def changed_and_offered_anew(house: House) -> None:
    house.model.then(calls(use("odd__add_tool", "e", name="more.x")), says("Added."))
    before = len(house.told.entries)
    await house.ask("add")
    await house.told.until("mcp.listed", after=before)
    house.model.then(says("I see."))
    await house.ask("look again")
    (more,) = [name for name in tool_names(house.model.requests[-1]) if name.startswith("odd__more")]
    house.model.then(calls(use(more, "f", words="yes")), says("So."))
    await house.ask("call it")
    assert await house.results() == ["more.x says yes"]


async def lost_and_found_again(house: House) -> None:
    """A server that dies under a write: unknown, and its tools come back."""
    house.model.then(calls(use("odd__die", "g")), says("Hm."))
    await house.ask("die")
    assert "may or may not have taken effect" in (await house.results())[0]
    assert (await outcomes(house))[-1] == "unknown"
    house.model.then(calls(use("odd__look", "h", words="back")), says("Back."))
    await house.ask("are you back")
    assert await house.results() == ["seen back"]


async def cancelled(house: House, home: Home) -> None:
    """With the turn, the call in the server."""
    house.model.then(calls(use("odd__wait", "i", words="long")))
    message = await house.say("wait")
    await ledger(home).until("began long")
    await house.client.cancel("c1")
    assert kinds(await house.ended(message))[-1] == "turn.cancelled"
    await ledger(home).until("cancelled long")
    assert (await outcomes(house))[-1] == "unknown"


async def told_in_few_words(house: House) -> None:
    house.model.then(calls(use("odd__flood", "j"), use("odd__picture", "k")), says("Much."))
    await house.ask("much")
    much, picture = await house.results()
    assert len(much.encode()) <= 16_384
    assert "read_result with handle=" in much
    assert picture == "see\n[image, image/png, about 3 bytes: not shown]"
    assert results_in(house.model.requests[-1])[-1]["content"] == picture
