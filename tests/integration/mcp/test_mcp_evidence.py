"""The research sub-agent searches the example server that ships, by config alone."""

import shutil
import sys
from pathlib import Path

import msgspec
import pytest

from tests.integration.home.houses import Home, living
from tests.support.doubles import calls, says, use

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """The one backend with a gateway."""
    return "asyncio"


async def test_research_searches_an_mcp_server_in_place_of_the_index(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    shutil.copytree(ROOT / "config" / "mcp", home.path / "config" / "mcp")
    shutil.copytree(ROOT / "config" / "evidence", home.path / "corpus")  # no evidence of the home's own
    shutil.copytree(ROOT / "config" / "subagents", home.path / "config" / "subagents")
    (home.path / "config" / "subagents" / "build_plan.toml").unlink()
    research = home.path / "config" / "subagents" / "spawn_research_agent.toml"
    text = research.read_text().replace('rehearsal = "research"', 'evidence = { server = "evidence" }')
    research.write_text(text)
    (home.path / "config" / "mcp.toml").write_text(
        f'[mcp.evidence]\ncommand = "{sys.executable}"\n'
        'args = ["config/mcp/evidence_server.py", "corpus"]\nreads = ["search_evidence"]\n'
    )
    home.agent(subagents=["spawn_research_agent"])
    answer = '{"source_ids": ["ev-sleep-001", "ev-made-up"], "planner_reflection": "One search."}'
    async with living(
        home,
        calls(use("spawn_research_agent", "a", task="What helps against insomnia?")),
        calls(use("search_evidence", "b", query="behavioural therapy insomnia", limit=4)),
        calls(use("select_sources", "c", ids=["ev-sleep-001"])),
        says(answer),
        says("Behavioural therapy."),
    ) as house:
        await house.ask("What helps?")
        (told,) = await house.results()
        bundle = msgspec.json.decode(told)
        (source,) = bundle["sources"]
        assert (source["id"], source["locator"]) == ("ev-sleep-001", "sleep.jsonl:1")
        assert source["title"] == "Behavioural therapy for insomnia as the first offer"
        (finished,) = await house.records("subagent_finished")
        assert finished["dropped"] == ["ev-made-up"]
        assert "mcp.connected" in {entry["event"] for entry in house.told.entries}
