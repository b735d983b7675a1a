"""What the engine calls its tools, nobody else may."""

from pathlib import Path

import pytest

from torpor.subagents.making import RESULTS
from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES
from torpor.toolhost.load import load_tools
from torpor.toolhost.reserved import RESERVED_NAMES, RESULT_TOOL_NAMES

HOME = Path(__file__).parents[3]


def test_every_tool_of_a_result_type_has_a_reserved_name() -> None:
    made = {tool.name for make in RESULTS.values() for tool in make(HOME, is_served=False).tools}

    assert made == RESULT_TOOL_NAMES
    assert made | ENGINE_TOOL_NAMES == RESERVED_NAMES


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_tool_of_a_home_cannot_have_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        f'from torpor import tool\n\n\n@tool(effect="read")\ndef {name}() -> str:\n    """Mine."""\n    return ""\n'
    )

    loaded = load_tools(tmp_path)

    assert loaded.tools == ()
    assert [problem.message for problem in loaded.problems] == [
        f"declares {name!r}, which is a tool of the engine: give it another name"
    ]
