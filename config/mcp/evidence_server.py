"""An MCP server that searches the evidence of this home: an example, to put a search of your own in its place.

    [mcp.evidence]                                   # in config/mcp.toml
    command = "python3"
    args = ["config/mcp/evidence_server.py", "config/evidence"]
    reads = ["search_evidence"]

    evidence = { server = "evidence" }               # in config/subagents/spawn_research_agent.toml

The Python that runs it needs nothing but the package `mcp`; in a checkout that is `.venv/bin/python`. What matters to
the sub-agent is the shape of the answer: a list of entries with `id`, `title`, `locator` and `excerpt`, and where
there are such `year`, `kind` and `strength`.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.types import ToolAnnotations
from pydantic import BaseModel  # which mcp brings along

EXCERPT_CHARS = 240
STEM_CHARS = 5  # other forms of a word share as many letters


class Entry(BaseModel):
    id: str
    title: str
    locator: str
    excerpt: str
    year: int
    kind: str
    strength: str


def stems(text: str) -> list[str]:
    return [word[:STEM_CHARS] for word in re.findall(r"\w{3,}", text.lower())]


def read(folder: Path) -> list[tuple[Entry, Counter[str]]]:
    """Every entry with what each of its words weighs."""
    entries = []
    for file in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            told = json.loads(line)
            entry = Entry(
                id=told["id"],
                title=told["title"],
                locator=f"{file.name}:{number}",
                excerpt=told["abstract"][:EXCERPT_CHARS],
                year=told["year"],
                kind=told["kind"],
                strength=told["strength"],
            )
            weights = Counter(stems(told["abstract"]))
            weights.update(dict.fromkeys(stems(told["title"] + " " + file.stem), 3))
            entries.append((entry, weights))
    return entries


server = MCPServer("evidence")
ENTRIES = read(Path(sys.argv[1] if len(sys.argv) > 1 else "config/evidence"))


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def search_evidence(query: str, limit: int = 5) -> list[Entry]:
    """Find entries that share words with the query, the best first."""
    wanted = set(stems(query))
    scores = [(sum(weights[stem] for stem in wanted), entry) for entry, weights in ENTRIES]
    best = sorted((found for found in scores if found[0]), key=lambda found: (-found[0], found[1].id))
    return [entry for _, entry in best[:limit]]


if __name__ == "__main__":
    server.run("stdio")
