"""A tool of a sub-agent that heeds no cancellation does not outlast the sub-agent's time."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.home.houses import kinds, living
from tests.integration.home.research_house import KEY, PARENT, RESEARCH, calls, cast, make_home, of, results, sources
from tests.integration.home.test_subagents import asks_once, finished
from torpor.toolhost import own_tasks
from torpor.toolhost.reserved import SELECT_SOURCES
from torpor_fake_api.scripting.replies import Reply
from torpor_fake_api.server import serving

DEADLINE_S = 60.0
DEAF = '''
from pathlib import Path

import anyio

from torpor import tool

END = Path(__file__).parent.parent / "end"


@tool(effect="read", deadline_s=300)
async def linger() -> str:
    """Linger."""
    while not END.exists():
        try:
            await anyio.sleep(0.01)
        except BaseException:
            pass
    return "late"
'''


async def test_its_time_ends_it_while_the_tool_still_runs_and_what_was_selected_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KEY, "sk-any")
    monkeypatch.setattr(own_tasks, "_LETS_GO_S", 0.05)
    steps = [
        calls(("search_evidence", {"query": "falls"})),
        calls(("select_sources", {"ids": ["ev-falls-006"]})),
        calls(("linger", {})),
    ]

    def part(number: int, _: dict[str, Any]) -> Reply | str:
        return steps[number] if number < len(steps) else sources()

    async with serving(profile="strict", seed="a") as api:
        api.otherwise(cast(parent=asks_once(RESEARCH), spawn_research_agent=part))
        home = make_home(tmp_path / "home", api, spawn_research_agent={"tools": ["linger"], "seconds_max": 3.0})
        home.module("deaf.py", DEAF)
        async with living(home, is_asking=True) as house:
            try:
                with anyio.fail_after(DEADLINE_S):
                    told = kinds(await house.ask("What helps?"))
                    (ended,) = await finished(house)
                    work = await house.client.inspect(f"default/developer/c1/{ended['child']}")
            finally:
                (home.path / "end").touch()
        (result,) = results(of(api, PARENT)[-1].body)
    assert told[-1] == "turn.finished"
    assert (ended["code"], ended["outcome"]) == ("seconds", "succeeded")
    has_selected = any(each["kind"] == "tool_finished" and each["name"] == SELECT_SOURCES for each in work)
    assert [source["id"] for source in json.loads(result)["sources"]] == (["ev-falls-006"] if has_selected else [])
