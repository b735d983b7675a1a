"""A home whose agent has sub-agents work, and a strict host that answers for all of them.

The engine talks to the host through the real SDK. What is asked there is told apart by the tools that are offered: each
kind of sub-agent has its own.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.integration.home.houses import Home
from torpor.toolhost.reserved import READ_INTERVENTION, SELECT_SOURCES
from torpor_fake_api.received import Received
from torpor_fake_api.scripting.replies import Reply, ToolUse, says
from torpor_fake_api.scripting.script import Asked
from torpor_fake_api.server import FakeApi

RESEARCH: Final = "spawn_research_agent"
PLAN: Final = "build_plan"
KEY: Final = "RESEARCH_HOUSE_KEY"
SHIPPED: Final = Path(__file__).parents[3] / "config"
PARENT: Final = "parent"
_MARKS: Final = {READ_INTERVENTION: PLAN, SELECT_SOURCES: RESEARCH}
"""The tool by which each kind of sub-agent is known."""

Part = Callable[[int, dict[str, Any]], Reply | str]
"""What somebody answers in their n-th round, from 0, to this request."""


def make_home(path: Path, api: FakeApi, **changes: Mapping[str, Any]) -> Home:
    """The sub-agents, evidence and catalogue that ship, and an agent that may have both work.

    Args: changes: keys of a sub-agent's file, by its name.
    """
    home = Home(path)
    for name in ("evidence", "subagents"):
        shutil.copytree(SHIPPED / name, path / "config" / name)
    shutil.copy(SHIPPED / "interventions.toml", path / "config")
    for name, keys in changes.items():
        file = path / "config" / "subagents" / f"{name}.toml"
        kept = [line for line in file.read_text().splitlines() if line.partition(" = ")[0] not in keys]
        file.write_text("\n".join([*(f"{key} = {json.dumps(value)}" for key, value in keys.items()), *kept]) + "\n")
    agent(home, api, subagents=[RESEARCH, PLAN])
    return home


def agent(home: Home, api: FakeApi, **fields: Any) -> None:
    """Have the clerk, and the sub-agents, ask ``api``."""
    home.agent(**fields)
    file = home.path / "config" / "agents" / "clerk.toml"
    text = file.read_text().partition("[model]")[0]
    file.write_text(
        f'{text}[model]\nkind = "anthropic"\nmodel = "claude-haiku-4-5"\nbase_url = "{api.url}"\nkey_env = "{KEY}"\n'
    )
    for definition in (home.path / "config").glob("subagents/*.toml"):
        lines = definition.read_text().splitlines()
        definition.write_text("\n".join(line for line in lines if not line.startswith("rehearsal")) + "\n")


def who(body: dict[str, Any]) -> str:
    """Who asks: the parent, or a kind of sub-agent."""
    offered = {tool["name"] for tool in body["tools"]}
    return next((name for mark, name in _MARKS.items() if mark in offered), PARENT)


def cast(**parts: Part) -> Callable[[Asked], Reply]:
    """Everybody plays a part. Args: parts: by ``parent``, or the name of a sub-agent."""

    def play(asked: Asked) -> Reply:
        messages = asked.body["messages"]
        said = parts[who(asked.body)](sum(message["role"] == "assistant" for message in messages), asked.body)
        return says(said) if isinstance(said, str) else said

    return play


def calls(*uses: tuple[str, Mapping[str, Any]]) -> Reply:
    return says(*(ToolUse(name, dict(arguments)) for name, arguments in uses))


def sources(*ids: str) -> str:
    """The last words of a research."""
    return json.dumps({"source_ids": ids, "planner_reflection": "Two sets of words; nothing on children."})


def results(body: dict[str, Any]) -> list[str]:
    """What the calls in a request came back with, in order."""
    blocks = (block for message in body["messages"] for block in message["content"] if not isinstance(block, str))
    return [text_in(block["content"]) for block in blocks if block["type"] == "tool_result"]


def text_in(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def shown_ids(body: dict[str, Any]) -> list[str]:
    """Ids of evidence that searches have shown in a request, as often as they were."""
    lines = (line for result in results(body) for line in result.splitlines() if " | " in line)
    return [line.partition(" | ")[0] for line in lines]


def of(api: FakeApi, whom: str) -> list[Received]:
    return [request for request in api.requests if who(request.body) == whom]


def violations(api: FakeApi) -> list[Any]:
    return [violation for request in api.requests for violation in request.violations]


def statuses(requests: Iterable[Received]) -> set[int]:
    return {request.status for request in requests}
