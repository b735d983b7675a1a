"""docs/operators.md tells the limits of sub-agents as the code has them."""

import tomllib
from pathlib import Path

import msgspec

from tests.unit.docs.test_tables import DOCS, table, words
from torpor.subagents.envelope import Check, Envelope, FollowUp, Goal, Planned
from torpor.subagents.making import RESULTS
from torpor.subagents.options import SubagentOptions
from torpor.toolhost.contract import Finding


def test_limits_of_sub_agents_are_told_with_their_defaults() -> None:
    text = (DOCS / "operators.md").read_text().partition("\n## Sub-agents\n")[2].partition("\n## ")[0]
    rows = text.partition("| `[subagents]` |")[2].partition("\n\n")[0].splitlines()[2:]
    told = {
        cells[1].strip(" `"): tomllib.loads(f"value = {cells[2].strip(' `')}")["value"] for cells in map(_cells, rows)
    }

    assert told == msgspec.to_builtins(SubagentOptions())


def test_sub_agents_that_ship_are_told() -> None:
    shipped = {file.stem for file in (Path(__file__).parents[3] / "config" / "subagents").glob("*.toml")}

    assert set(table("operators.md", "Sub-agents")) == shipped


def test_every_type_of_result_is_told() -> None:
    told = table("tool-authors.md", "A sub-agent of your own")

    assert {result.strip('"') for result in told} == set(RESULTS)


def test_every_field_of_a_bundle_is_told() -> None:
    told = {kind: words(cells[0]) for kind, cells in table("protocol.md", "Sub-agents").items()}

    assert told["research"] >= {"sources", "planner_reflection", *Finding.__struct_fields__}
    assert told["plan"] >= {
        name for part in (Envelope, Goal, Planned, Check, FollowUp) for name in part.__struct_fields__
    }


def _cells(line: str) -> list[str]:
    return line.split("|")
