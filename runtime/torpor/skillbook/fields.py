"""The values of a front matter as what they should be, and a finding for each that is something else. PURE."""

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from torpor.conversation.text import clean
from torpor.skillbook.decoding import Finding

# A pattern such as Bash(git add:*) is one tool.
_TOOL: Final = re.compile(r"(?:[^\s,()]|\((?:[^()]|\([^()]*+\))*+\)|[()])+")
_TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "on", "y", "1"), True),
    **dict.fromkeys(("false", "no", "off", "n", "0"), False),
}
"""Also the words of older YAML, which authors mean as these."""
NO_TOOLS: Final = "[]"
"""Stands as the only tool where a skill allows none, which is not to say nothing of tools; no tool has this name."""


class Fields:
    """Text, lists and maps by key, read one by one; collects ``findings``."""

    def __init__(self, values: dict[str, Any], *, lines: dict[str, int]) -> None:
        self.values: Final = values
        self.findings: Final[list[Finding]] = []
        self._lines = lines

    def has(self, key: str) -> bool:
        return key in self.values

    def find(self, code: str, message: str, *, key: str = "") -> None:
        """Note a finding in the line of ``key``."""
        self.findings.append(Finding(code, message, self._lines.get(key, 0)))

    def text(self, key: str) -> str:
        """Text; what is none is written as JSON, a list of text as its items joined by commas."""
        value = self.values.get(key, "")
        if isinstance(value, str):
            return value
        self.find("not_text", f"has a {_kind(value)} in `{key}`, expected text", key=key)
        return ", ".join(map(_as_text, value)) if isinstance(value, list) else _as_text(value)

    def flag(self, key: str, *, default: bool, safe: bool) -> bool:
        """``true`` or ``false``, or a word for it, in any case. Args: safe: what counts where it is something else."""
        value = self.values.get(key)
        if value is None:
            return default
        found = _TRUTHS.get(value.strip().lower()) if isinstance(value, str) else None
        if found is None:
            self.find("not_true_or_false", f"has {_as_text(value)!r} in `{key}`, expected true or false", key=key)
            return safe
        return found

    def tools(self, key: str) -> tuple[str, ...]:
        """Names of tools, separated by blanks or commas outside parentheses; a list is as good.

        ``NO_TOOLS`` where the key is there and names none.
        """
        if key not in self.values:
            return ()
        value = self.values[key]
        if not isinstance(value, str):
            self.find("tools_not_text", f"has a {_kind(value)} in `{key}`, expected names separated by blanks", key=key)
        return tuple(dict.fromkeys(name for name in _names(value) if name)) or (NO_TOOLS,)

    def texts(self, key: str) -> dict[str, str]:
        """A map of text."""
        value = self.values.get(key, {})
        if value in ("", "null", "~"):
            value = {}
        if not isinstance(value, dict):
            self.find("metadata_not_text", f"has {_kind(value)} in `{key}`, expected a map of text", key=key)
            return {"value": _as_text(value)}
        odd = [inner for inner, content in value.items() if not isinstance(content, str)]
        if odd:
            self.find("metadata_not_text", f"has a {_kind(value[odd[0]])} in `{key}.{odd[0]}`, expected text", key=key)
        return {inner: _as_text(content) for inner, content in value.items()}


def _names(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield from (clean(found[0]).text for found in _TOOL.finditer(value))
        case list():
            for item in value:
                # An item is one tool, also where it has blanks; `Bash(git: x)` without quotes is read as a map.
                yield clean(item.strip()).text if isinstance(item, str) else _as_text(item)
        case _:
            yield from map(str, value)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _kind(value: Any) -> str:
    return "list" if isinstance(value, list) else "map" if isinstance(value, dict) else "text"
