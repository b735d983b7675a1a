"""Definitions become sub-agents, and one that may write is refused before anything starts."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from torpor import tool
from torpor.errors import ConfigError
from torpor.model.contract import Model
from torpor.model.scripted import ScriptedModel
from torpor.records.terms import Effect
from torpor.store.blobs import LocalBlobs
from torpor.subagents.definition import EvidenceServer, Subagent, SubagentDefinition
from torpor.subagents.making import NO_SERVERS, make_subagents
from torpor.toolhost.contract import Toolbox
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES
from torpor.toolhost.mcp.options import McpServer, Servers
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.registry import ToolRegistry

HOME = Path(__file__).parents[3]
SERVERS = {
    "wiki": McpServer(command="x", trust_read_only=True),
    "notes": McpServer(command="x", reads=("list",), tools=("list", "add")),
    "till": McpServer(command="x"),
}
USUAL = {"kind": "anthropic", "model": "m", "rehearsal": "clinic", "pace_cps": 90}


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(effect="write")
def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[ToolRegistry]:
    registry = ToolRegistry([look, pay], blobs=LocalBlobs(tmp_path), options=ToolOptions())
    yield registry
    registry.close()


def defined(name: str = "scout", **fields: Any) -> SubagentDefinition:
    return SubagentDefinition(name=name, description=f"Has {name} work.", system="You look.", **fields)


def model_of(_: SubagentDefinition) -> Model:
    return ScriptedModel(lambda turn: ())


def made(
    tools: ToolRegistry, *definitions: SubagentDefinition, home: Path = HOME, servers: Servers = NO_SERVERS
) -> dict[str, Subagent]:
    return make_subagents(
        definitions,
        home=home,
        tools=tools,
        model_of=model_of,
        model_table=USUAL,
        wrap_toolbox=lambda toolbox: toolbox,
        index_budget_tokens=2_000,
        servers=servers,
    )


def test_a_server_of_evidence_takes_the_place_of_the_index(tools: ToolRegistry) -> None:
    served = defined(result="research", evidence=EvidenceServer(server="lib"))
    subagent = make_subagents(
        [served],
        home=Path("/nowhere"),  # without any evidence of its own
        tools=tools,
        model_of=model_of,
        model_table=USUAL,
        wrap_toolbox=lambda toolbox: toolbox,
        index_budget_tokens=2_000,
        servers={"lib": McpServer(command="x")},
    )[served.name]

    assert own_tools(subagent) == {"search_evidence", "select_sources"}
    spec = subagent.agent.toolbox.spec("search_evidence")
    assert spec is not None
    assert spec.flag == "mcp.lib"


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("research", "evidence.server is 'lib'"),
        ("text", "evidence is a server, expected nothing, since a result 'text' searches no evidence"),
    ],
)
def test_a_server_that_cannot_be_searched_is_refused(tools: ToolRegistry, result: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        made(tools, defined(result=result, evidence=EvidenceServer(server="lib")))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mcp": ("lib",)}, "mcp is 'lib', expected MCP servers among notes, till, wiki"),
        ({"mcp": ("till",)}, "mcp is 'till', expected a server with tools that only read, for which `reads` or"),
        ({"mcp": ("notes__add",)}, "mcp is 'notes__add', expected a server and no tool: notes, of which `tools`"),
        ({"tools": ("notes__add",)}, "tools is 'notes__add', expected tools of the home; `mcp` names MCP servers"),
        (
            {"result": "research", "evidence": EvidenceServer(server="notes")},
            "evidence.tool is 'search_evidence', expected one of list, add, which `tools` of notes in",
        ),
    ],
)
def test_what_servers_cannot_lend_is_refused(tools: ToolRegistry, fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=f"config/subagents/scout.toml: {expected}"):
        made(tools, defined(**fields), servers=SERVERS)


@pytest.mark.parametrize("names", [("*",), ("wiki", "notes")])
def test_servers_that_it_names_lend_it_tools_beside_its_own(tools: ToolRegistry, names: tuple[str, ...]) -> None:
    lent = []

    def lending(named: Sequence[str], own: Toolbox) -> None:
        lent.append((named, {spec.name for spec in own.specs()} - ENGINE_TOOL_NAMES))

    make_subagents(
        [defined(tools=("look",), mcp=names), defined("other")],
        home=HOME,
        tools=tools,
        model_of=model_of,
        model_table=USUAL,
        wrap_toolbox=lambda toolbox: toolbox,
        index_budget_tokens=2_000,
        servers=SERVERS,
        lending=lending,
    )

    assert lent == [(names, {"look"})]


def own_tools(subagent: Subagent) -> set[str]:
    return {spec.name for spec in subagent.agent.toolbox.specs()} - ENGINE_TOOL_NAMES


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, set()),
        ({"tools": ("look",)}, {"look"}),
        ({"result": "research"}, {"search_evidence", "select_sources"}),
        ({"result": "plan"}, {"search_interventions", "read_intervention", "search_evidence"}),
        ({"subagents": ("other",)}, {"other"}),
        ({"subagents": ("*",)}, {"scout", "other"}),
    ],
)
def test_it_has_the_tools_that_it_names_and_those_of_its_result_and_none_that_writes(
    tools: ToolRegistry, fields: dict[str, Any], names: set[str]
) -> None:
    scout = made(tools, defined(**fields), defined("other"))["scout"]

    assert own_tools(scout) == names
    assert {spec.effect for spec in scout.agent.toolbox.specs()} == {Effect.READ}


def test_a_home_without_evidence_offers_no_search_of_it(tools: ToolRegistry, tmp_path: Path) -> None:
    (scout,) = made(tools, defined(result="research", tools=("look",)), home=tmp_path).values()

    assert own_tools(scout) == {"look", "select_sources"}


def test_what_was_read_for_their_results_is_told_in_the_log(tools: ToolRegistry) -> None:
    with capture_logs() as logs:
        made(tools, defined(result="research"), defined("other", result="plan"))

    told = {log["event"]: log["entries"] for log in logs}
    assert set(told) == {"evidence.read", "interventions.read"}
    assert all(entries > 0 for entries in told.values())


def test_evidence_of_the_home_is_not_read_where_a_server_is_searched(tools: ToolRegistry, tmp_path: Path) -> None:
    (tmp_path / "config" / "evidence").mkdir(parents=True)
    (tmp_path / "config" / "evidence" / "sleep.jsonl").write_text("no entry")
    served = defined(result="research", evidence=EvidenceServer(server="wiki", tool="find"))

    with capture_logs() as logs:
        made(tools, served, home=tmp_path, servers=SERVERS)

    (log,) = logs
    assert (log["event"], log["subagent"], log["server"], log["tool"]) == ("evidence.served", "scout", "wiki", "find")


@pytest.mark.parametrize("file", ["", "README.md", "sleep.jsonl"])
def test_a_research_without_anything_to_search_is_an_error(tools: ToolRegistry, tmp_path: Path, file: str) -> None:
    if file:
        (tmp_path / "config" / "evidence").mkdir(parents=True)
        (tmp_path / "config" / "evidence" / file).touch()

    with pytest.raises(ConfigError, match="config/evidence: folder is without an entry, expected entries in"):
        made(tools, defined(result="research"), home=tmp_path)


def test_what_its_answer_must_be_stands_behind_its_prompt(tools: ToolRegistry) -> None:
    (scout,) = made(tools, defined(result="research")).values()

    assert scout.agent.definition.system == f"You look.\n\n{scout.result.instructions()}"


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (defined(tools=("pay",)), "config/subagents/scout.toml: tools is 'pay', expected tools that only read"),
        (defined(tools=("peep",)), "tools is 'peep', expected tools among look"),
        (defined(result="essay"), "result is 'essay', expected one of text, research, plan"),
        (defined("look"), "config/subagents/look.toml: name is 'look', expected a name that no tool has"),
        (defined("select_sources"), "name is 'select_sources', expected a name that no tool has"),
        (defined(subagents=("scribe",)), "subagents is 'scribe', expected sub-agents among scout"),
    ],
)
def test_a_definition_that_cannot_work_is_refused(
    tools: ToolRegistry, definition: SubagentDefinition, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        made(tools, definition)


def test_a_plan_without_a_catalogue_is_refused(tools: ToolRegistry, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config/interventions.toml: file is missing"):
        made(tools, defined(result="plan"), home=tmp_path)


@pytest.mark.parametrize(
    ("fields", "table"),
    [
        ({}, {"kind": "anthropic", "model": "m", "rehearsal": "clinic"}),
        ({"rehearsal": "r"}, {"kind": "anthropic", "model": "m", "rehearsal": "r"}),
        ({"model": {"kind": "scripted", "rehearsal": "x"}, "rehearsal": "r"}, {"kind": "scripted", "rehearsal": "r"}),
        ({"model": {"kind": "local", "path": "p"}, "rehearsal": "r"}, {"kind": "local", "path": "p"}),
    ],
)
def test_it_asks_its_own_model_or_the_usual_one_and_plays_its_own_rehearsal(
    fields: dict[str, Any], table: dict[str, Any]
) -> None:
    assert defined(**fields).model_table(USUAL) == table
