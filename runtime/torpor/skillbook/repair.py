"""Front matter that is not quite YAML, mended the way its author meant it. PURE.

The usual slip is a value with a colon, a bracket or a stray quote in it that should have been in quotes.
"""

import re
from typing import Final, NamedTuple

from torpor.skillbook.yaml_text import YamlFault, read_mapping

_TAB_INDENT: Final = re.compile(r"^[ ]*\t[ \t]*", re.MULTILINE)
_PAIR: Final = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*))?")
_BLOCK: Final = re.compile(r"[|>][+-]?[1-9]?[+-]?(?:[ \t]+#.*)?")
_IN_QUOTES: Final = re.compile(r"\"(.*)\"|'(.*)'")
_SCANNED: Final = ("name", "description")
MENDED_LINES_MAX: Final = 1_000
"""Lines whose values are looked at one by one; front matter that is longer is no slip of the pen."""


class _Pair(NamedTuple):
    key: str
    value: str


def without_tabs(text: str) -> str:
    """Tabs at the beginning of lines as two spaces each."""
    return _TAB_INDENT.sub(lambda indent: indent[0].replace("\t", "  "), text)


def quoted(text: str) -> tuple[str, tuple[int, ...]]:
    """``text`` with those one-line values of the top level in quotes that YAML cannot read as they are, and the numbers
    of their lines from 1; unchanged where there are more than ``MENDED_LINES_MAX`` lines."""
    lines = text.split("\n")
    if len(lines) > MENDED_LINES_MAX:
        return text, ()
    numbers = []
    for number, line in enumerate(lines, start=1):
        pair = _pair(line)
        follows = lines[number] if number < len(lines) else ""
        if pair is None or not pair.value or _BLOCK.fullmatch(pair.value) or follows[:1] in {" ", "\t"}:
            continue
        if not _is_value(pair.value, is_text=pair.key in _SCANNED):
            lines[number - 1] = f"{pair.key}: '{_literal(pair.value).replace(chr(39), chr(39) * 2)}'"
            numbers.append(number)
    return "\n".join(lines), tuple(numbers)


def scanned(text: str) -> dict[str, str]:
    """Name and description alone, each as the rest of its line with the indented lines below it."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        if not line.strip() or line[:1] in {" ", "\t"}:
            current.append(line.strip())
            continue
        pair = _pair(line)
        current = []
        if pair is not None and pair.key in _SCANNED:
            current.append("" if _BLOCK.fullmatch(pair.value) else pair.value)
            found[pair.key] = current
    return {key: _literal("\n".join(lines).strip()) for key, lines in found.items()}


def _pair(line: str) -> _Pair | None:
    found = _PAIR.fullmatch(line)
    return None if found is None else _Pair(found[1], (found[2] or "").rstrip(" \t"))


def _is_value(value: str, *, is_text: bool) -> bool:
    """Whether YAML reads ``value`` as what it looks like: in quotes, a list or map, or plain."""
    try:
        read = read_mapping(f"x: {value}").values.get("x")
    except YamlFault:
        return False
    if value[0] in {'"', "'"}:
        return isinstance(read, str)
    if value[0] in {"[", "{"}:
        return not is_text
    return bool(read == value)


def _literal(value: str) -> str:
    """What stands between quotes that go around all of ``value``."""
    found = _IN_QUOTES.fullmatch(value)
    return value if found is None else found[1] or found[2] or ""
