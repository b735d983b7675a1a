"""Front matter that is not quite YAML, mended the way its author meant it. PURE.

The usual slip is a value with a colon, a bracket or a stray quote in it that should have been in quotes.
"""

import re
from typing import Final

from torpor.skillbook.yaml_text import YamlFault, read_mapping

_TAB_INDENT: Final = re.compile(r"^[ ]*\t[ \t]*", re.MULTILINE)
_PAIR: Final = re.compile(r"([A-Za-z_][\w.-]*)[ \t]*:(?:[ \t]+(.*?))?[ \t]*")
_BLOCK: Final = re.compile(r"[|>][+-]?[1-9]?[+-]?(?:[ \t]+#.*)?")
_IN_QUOTES: Final = re.compile(r"\"(.*)\"|'(.*)'")
_SCANNED: Final = ("name", "description")


def without_tabs(text: str) -> str:
    """Tabs at the beginning of lines as two spaces each."""
    return _TAB_INDENT.sub(lambda indent: indent[0].replace("\t", "  "), text)


def quoted(text: str) -> tuple[str, tuple[int, ...]]:
    """``text`` with those one-line values of the top level in quotes that YAML cannot read as they are, and the numbers
    of their lines from 1."""
    lines = text.split("\n")
    numbers = []
    for number, line in enumerate(lines, start=1):
        found = _PAIR.fullmatch(line)
        follows = lines[number] if number < len(lines) else ""
        if found is None or not found[2] or _BLOCK.fullmatch(found[2]) or follows[:1] in {" ", "\t"}:
            continue
        if not _is_value(found[2], is_text=found[1] in _SCANNED):
            lines[number - 1] = f"{found[1]}: '{_literal(found[2]).replace(chr(39), chr(39) * 2)}'"
            numbers.append(number)
    return "\n".join(lines), tuple(numbers)


def scanned(text: str) -> dict[str, str]:
    """Name and description alone, each as the rest of its line with the indented lines below it."""
    found: dict[str, str] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines):
        pair = _PAIR.fullmatch(line)
        if pair is None or pair[1] not in _SCANNED:
            continue
        more = []
        for below in lines[number + 1 :]:
            if below.strip() and below[:1] not in {" ", "\t"}:
                break
            more.append(below.strip())
        first = "" if pair[2] is None or _BLOCK.fullmatch(pair[2]) else pair[2]
        found[pair[1]] = _literal("\n".join([first, *more]).strip())
    return found


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
