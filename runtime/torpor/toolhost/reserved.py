"""Names that no tool of a home may have and no sub-agent, since tools of the engine have them.

Above: the loader, and whoever makes sub-agents. Some of them are offered to sub-agents alone, by the type of result
that they owe; whoever makes those tools takes their names from here.
"""

from typing import Final

from torpor.toolhost.engine_tools import ENGINE_TOOL_NAMES

SEARCH_EVIDENCE: Final = "search_evidence"
SELECT_SOURCES: Final = "select_sources"
SEARCH_INTERVENTIONS: Final = "search_interventions"
READ_INTERVENTION: Final = "read_intervention"

RESULT_TOOL_NAMES: Final = frozenset({SEARCH_EVIDENCE, SELECT_SOURCES, SEARCH_INTERVENTIONS, READ_INTERVENTION})
"""Those that go with types of results."""
RESERVED_NAMES: Final = ENGINE_TOOL_NAMES | RESULT_TOOL_NAMES
