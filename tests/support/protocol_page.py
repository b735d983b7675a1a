"""What docs/protocol.md lists in its tables, so that tests hold the server to the page."""

import re
from pathlib import Path
from typing import Final

_PAGE: Final = Path(__file__).parents[2] / "docs" / "protocol.md"


def first_cells(heading: str) -> frozenset[str]:
    """The first column of the table under ``heading``, without its heading and marks."""
    _, _, rest = _PAGE.read_text().partition(f"\n## {heading}\n")
    section = rest.partition("\n## ")[0]
    cells = re.findall(r"^\| `?([^`|]+?)`? \|", section, re.MULTILINE)
    assert len(cells) > 2, f"no table under {heading!r}"
    return frozenset(cells[2:] if cells[1].startswith("-") else cells[1:])


ERROR_CODES: Final = first_cells("Errors")
CLOSE_CODES: Final = frozenset(map(int, first_cells("Closing")))
