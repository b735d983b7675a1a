"""A Google-style docstring as what a model reads: the description, and a line for each parameter.

Pure. Below everything else of the room; knows text only.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Final

_SECTION: Final = re.compile(r"(Args|Arguments|Parameters|Returns|Yields|Raises|Examples?|Notes?):\s*$")
_ARGUMENTS: Final = frozenset({"Args", "Arguments", "Parameters"})
_ENTRY: Final = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def described(docstring: str) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the description of each name in the section ``Args``.

    A line that continues an entry is indented further than the entry; its line break becomes a blank.
    """
    lines = inspect.cleandoc(docstring).splitlines()
    first = next((at for at, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return "\n".join(lines[:first]).strip(), dict(_entries(_arguments(lines)))


def _arguments(lines: list[str]) -> list[str]:
    """The lines of the section ``Args``, without its heading."""
    inside, found = False, []
    for line in lines:
        if heading := _SECTION.match(line):
            inside = heading[1] in _ARGUMENTS
        elif inside and line.strip():
            found.append(line)
    return found


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    indent = min((len(line) - len(line.lstrip()) for line in lines), default=0)
    name, words = "", [""]
    for line in lines:
        entry = _ENTRY.match(line[indent:])
        if entry is None:
            words.append(line.strip())
            continue
        if name:
            yield name, " ".join(words).strip()
        name, words = entry[1], [entry[2]]
    if name:
        yield name, " ".join(words).strip()
