"""Sub-agents with tools of real MCP servers: lent, refused, switched off, cancelled; and searches that fail."""

import sys
from pathlib import Path

import msgspec
import pytest

from tests.integration.home.houses import Home, House, home_tools, kinds, living, results_in, tool_names
from tests.support.doubles import Gate, calls, says, use, waits
from tests.support.mcp_ledger import McpLedger

SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
MISSING = "research_tool_that_nobody_has"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a gateway."""
    return "asyncio"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.settings(mcp={"backoff_s": 0.05, "turn_wait_s": 30.0})
    home.agent(subagents=["scout", "seeker", "lost"])
    define(home, "scout", 'mcp = ["*"]')
    define(home, "seeker", 'result = "research"\nevidence = { server = "gone" }')
    define(home, "lost", f'result = "research"\nevidence = {{ server = "odd", tool = "{MISSING}" }}')
    program = f'command = "{sys.executable}"\nargs = ["{SERVER}", "{home.path / "ledger.txt"}"]\n'
    (home.path / "config" / "mcp.toml").write_text(
        f'[mcp.odd]\n{program}trust_read_only = true\nreads = ["wait"]\n\n'
        f'[mcp.own]\n{program}reads = ["whoami"]\ntools = ["whoami", "write_down"]\n'
        'env = { CREDENTIAL = { credential = true } }\ncredentials = "secrets/{tenant}/{principal}"\n\n'
        '[mcp.gone]\ncommand = "/nowhere/at-all"\n'
    )
    secret = home.path / "secrets" / "default" / "developer"
    secret.parent.mkdir(parents=True)
    secret.write_text("the developer's own\n")
    return home


def define(home: Home, name: str, keys: str) -> None:
    home.subagent(name)
    file = home.path / "config" / "subagents" / f"{name}.toml"
    file.write_text(f"{file.read_text()}{keys}\n")


async def test_sub_agents_live_with_servers_through_a_day(home: Home) -> None:
    """One server for all of it, since each takes seconds to start."""
    ledger = McpLedger(home.path / "ledger.txt")
    async with living(home) as house:
        await reads_are_lent(house)
        await switched_off_in_mid_work(house, home)
        await cancelled(house, ledger)
        await down(house)
        await without_such_a_tool(house)
    assert not any(line.startswith("wrote") for line in ledger.lines())
    assert ledger.alive() == set()


async def reads_are_lent(house: House) -> None:
    """By both servers, to the sub-agent alone, with the credential of who speaks; a write is not there."""
    uses = (
        use("odd__look", "a", words="hi"),
        use("own__whoami", "b"),
        use("odd__write_down", "c", words="one"),
        use("own__write_down", "d", words="two"),
    )
    house.model.then(calls(use("scout", "s", task="look")), calls(*uses), says("Seen."), says("Done."))
    await house.ask("look")
    parent, child, answered, after = house.model.requests
    assert home_tools(child) == ["odd__look", "odd__progress", "odd__wait", "odd__whoami", "own__whoami"]
    assert not {name for request in (parent, after) for name in tool_names(request) if "__" in name}
    looked, own, *refused = [block["content"] for block in results_in(answered)]
    assert (looked, own) == ("seen hi", "the developer's own")
    assert all("is offered, expected one of" in text for text in refused)
    left_out = {entry["server"]: entry["tools"] for entry in house.told.of("mcp.writes_left_out")}
    assert left_out["own"] == ["write_down"]
    assert "write_down" in left_out["odd"]
    assert not house.told.of("mcp.not_started"), "of a server without reads there is nothing to start"


async def switched_off_in_mid_work(house: House, home: Home) -> None:
    gate = Gate()
    house.model.then(calls(use("scout", "t", task="look")))
    house.model.then(waits(gate, calls(use("odd__look", "e", words="hi"))), says("Refused."), says("Oh."))
    message = await house.say("look again")
    await gate.reached.wait()
    await house.after("flags.changed", lambda: home.flags(mcp__odd=False))
    gate.opened.set()
    await house.ended(message)
    assert "odd__look is switched off" in results_in(house.model.requests[-2])[-1]["content"]
    await house.after("flags.changed", lambda: home.flags(mcp__odd=True))


async def cancelled(house: House, ledger: McpLedger) -> None:
    """With the turn the sub-agent, and with it the call in the server."""
    house.model.then(calls(use("scout", "u", task="wait")), calls(use("odd__wait", "f", words="long")))
    message = await house.say("wait")
    await ledger.until("began long")
    await house.client.cancel("c1")
    assert "turn.cancelled" in kinds(await house.ended(message))
    await ledger.until("cancelled long")


async def down(house: House) -> None:
    """Nothing looks like nothing known, whatever the sub-agent says of it."""
    answer = '{"source_ids": [], "planner_reflection": "Nothing is known."}'
    house.model.then(calls(use("seeker", "v", task="seek")), calls(use("search_evidence", "g", query="sleep")))
    house.model.then(says(answer), says("I cannot tell."))
    await house.ask("what is known?")
    (failed,) = results_in(house.model.requests[-2])
    assert failed["is_error"]
    assert "gone cannot be reached now" in failed["content"]
    assert "the search failed, which does not tell whether there is anything to find" in failed["content"]
    bundle = msgspec.json.decode((await house.results())[0])
    note = bundle["planner_reflection"]
    assert note.startswith(
        "[The only search failed, so it is not known whether there are sources. Why: the server gone "
    )
    assert note.endswith("; nothing was done, try again later.] Nothing is known.")
    kept = await house.client.bundle("c1", bundle["research_bundle_id"])
    assert (kept["searches"]["made"], kept["searches"]["failed"]) == (1, 1)


async def without_such_a_tool(house: House) -> None:
    answer = '{"source_ids": [], "planner_reflection": "Nothing."}'
    house.model.then(calls(use("lost", "w", task="seek")), calls(use("search_evidence", "h", query="sleep")))
    house.model.then(says(answer), says("I cannot tell."))
    await house.ask("and there?")
    (failed,) = results_in(house.model.requests[-2])
    assert f"the server odd has no tool '{MISSING}'" in failed["content"]
    (unknown,) = house.told.of("mcp.tool_unknown")
    assert (unknown["server"], unknown["tool"], unknown["level"]) == ("odd", MISSING, "warning")
    assert "look" in unknown["has"]
