"""The sub-agent of docs/tool-authors.md works as the page has it, in the home that ships."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.integration.home.houses import Home, kinds, living
from torpor.cli.config import findings_of
from torpor.records.events import AnyEvent, ReplyFinishedEvent

ROOT = Path(__file__).parents[3]
_, _, BELOW = (ROOT / "docs" / "tool-authors.md").read_text().partition("## A sub-agent of your own\n")
SECTION = BELOW.partition("\n## ")[0]
(TOOL,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
DEFINITION, REHEARSAL, RULE = re.findall(r"```toml\n(.*?)```", SECTION, re.DOTALL)
NAME = "search_past_meetings"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """As a reader has it who has done what the page says."""
    home = Home(tmp_path / "home")
    shutil.rmtree(home.path / "config")
    for part in ("config", "tools"):
        shutil.copytree(ROOT / part, home.path / part, ignore=shutil.ignore_patterns("__pycache__"))
    agent, plays = home.path / "config/agents/clinic.toml", home.path / "config/rehearsals/clinic.toml"
    agent.write_text(agent.read_text().replace('"build_plan"]', f'"build_plan", "{NAME}"]'))
    agent.write_text(agent.read_text().replace("# pace_cps = 0 ", "pace_cps = 0 "))
    plays.write_text(plays.read_text().replace("[[rule]]", f"{RULE}\n[[rule]]", 1))
    for file, text in {
        "tools/minutes.py": TOOL,
        f"config/subagents/{NAME}.toml": DEFINITION,
        f"config/rehearsals/{NAME}.toml": REHEARSAL,
        "minutes/may.txt": "Meeting in May\nThe parking lot is full each Monday.",
        "minutes/june.txt": "Meeting in June\nWe buy a new printer.",
    }.items():
        (home.path / file).parent.mkdir(exist_ok=True)
        (home.path / file).write_text(text)
    return home


def last_words(events: list[AnyEvent]) -> str:
    return [event.text for event in events if isinstance(event, ReplyFinishedEvent)][-1]


def test_nothing_is_wrong_with_it_and_its_cost_is_told(home: Home) -> None:
    found = list(findings_of(home.path, {}))

    assert [each for each in found if not each.ok] == []
    (told,) = (each.detail for each in found if each.name == f"config/subagents/{NAME}.toml")
    assert told.startswith("result research, anthropic model, about ")


async def test_it_works_for_the_agent_and_answers_with_what_its_tool_found(home: Home) -> None:
    async with living(home, is_asking=True) as house:
        events = await house.ask("What did past meetings say?")
        (ended,) = await house.records("subagent_finished")

    assert kinds(events)[-1] == "turn.finished"
    told = json.loads(last_words(events))
    assert [source["id"] for source in told["sources"]] == ["may"]
    assert told["sources"][0]["title"] == "Meeting in May"
    assert (ended["name"], ended["findings"], ended["rounds"]) == (NAME, 1, 2)
