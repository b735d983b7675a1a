"""The front matter of a Markdown file and the text below it, read as far as it can be. PURE.

A fence is a whole line; ``---`` inside a value or a text is none. What is no YAML goes down a ladder: tabs as spaces,
values in quotes, name and description line by line, nothing. Each step it takes is a finding. What restricts a skill is
never lost on the way: where only name and description could be read and there is more of that kind, nothing is read.
"""

import re
from typing import Any, Final, NamedTuple

from torpor.skillbook.decoding import Finding, decode
from torpor.skillbook.repair import quoted, scanned, without_tabs
from torpor.skillbook.yaml_text import Mapping, YamlFault, read_mapping

SHOWN_CHARS_MAX: Final = 80
"""Of a key or name in a message."""
REPEATED_TOLD_MAX: Final = 20

_RESTRICTION: Final = re.compile(
    r"allowed[-_ ]?tools|disable[-_ ]?model[-_ ]?invocation|user[-_ ]?invocable", re.IGNORECASE
)
"""What says who may use a skill, and what may be done with it: never dropped with the rest of what cannot be read."""
_OPENING: Final = re.compile(r"---[ \t]*")
_CLOSING: Final = re.compile(r"^(?:---|\.\.\.)[ \t]*$", re.MULTILINE)


class FrontMatter(NamedTuple):
    """What a file came to."""

    values: dict[str, Any] | None
    """Text, lists and maps of them; None when there is no front matter to be read, and a finding says why."""
    lines: dict[str, int]
    """In the file, from 1, of each key where it is known."""
    body: str
    """All that is below, without blank lines around it."""
    findings: tuple[Finding, ...]


def read_front_matter(data: bytes) -> FrontMatter:
    """Read ``data``; never raises for what is in it."""
    text, decoding = decode(data)
    findings = list(decoding)
    start = len(text) - len(text.lstrip(" \t\n"))
    before = text.rfind("\n", 0, start) + 1
    opening = _OPENING.match(text, before)
    first_line = text.count("\n", 0, before) + 1
    if opening is None or text[opening.end() : opening.end() + 1] not in {"\n", ""}:
        findings.append(Finding("no_front_matter", "does not begin with a line `---`, expected front matter", 1))
        return FrontMatter(None, {}, text.strip("\n"), tuple(findings))
    if before:
        findings.append(Finding("blank_lines_first", "begins with blank lines, expected `---` on the first", 1))
    closing = _CLOSING.search(text, opening.end() + 1)
    if closing is None:
        findings.append(Finding("unclosed", "has no line `---` that closes the front matter", first_line))
        return FrontMatter(None, {}, "", tuple(findings))
    if closing[0].startswith("."):
        line = text.count("\n", 0, closing.start()) + 1
        findings.append(Finding("closed_by_dots", "closes the front matter by `...`, expected `---`", line))
    inside = text[opening.end() + 1 : closing.start()]
    mapping = _mapping(inside, above=first_line, findings=findings)
    body = text[closing.end() :].strip("\n")
    if mapping is None:
        return FrontMatter(None, {}, body, tuple(findings))
    for key, line in mapping.repeated[:REPEATED_TOLD_MAX]:
        message = f"has the key `{key[:SHOWN_CHARS_MAX]}` twice, the last one counts"
        findings.append(Finding("duplicate_key", message, line + first_line))
    lines = {key: line + first_line for key, line in mapping.lines.items()}
    return FrontMatter(mapping.values, lines, body, tuple(findings))


def _mapping(inside: str, *, above: int, findings: list[Finding]) -> Mapping | None:
    """The first step of the ladder that bears; ``above`` lines come before ``inside``."""
    try:
        mapping = read_mapping(inside)
    except YamlFault as exc:
        first = exc
    else:
        misread = [key for key in ("name", "description") if not isinstance(mapping.values.get(key, ""), str)]
        if not misread:
            return mapping
        first = YamlFault(f"`{misread[0]}` is a list or map", line=mapping.lines[misread[0]])
        if not _is_on_its_line(inside, first.line):
            return mapping
    return _mended(inside, first, above=above, findings=findings)


def _mended(inside: str, first: YamlFault, *, above: int, findings: list[Finding]) -> Mapping | None:
    spaced = without_tabs(inside)
    if spaced != inside:
        line = next(n for n, (a, b) in enumerate(zip(inside.split("\n"), spaced.split("\n"), strict=True)) if a != b)
        findings.append(Finding("tabs", "is indented by tabs, expected spaces", line + 1 + above))
        try:
            return read_mapping(spaced)
        except YamlFault:
            pass  # the next step looks at the same text
    text, numbers = quoted(spaced)
    try:
        mapping = read_mapping(text)
    except YamlFault:
        pass
    else:
        findings.extend(
            Finding("quoted", "has a value that YAML cannot read as it is, put it in quotes", number + above)
            for number in numbers
        )
        return mapping
    reason = f"is not YAML ({first.reason})"
    line = first.line + above
    if restriction := _RESTRICTION.search(inside):
        message = f"{reason}, and what it says of `{restriction[0]}` would be lost"
        findings.append(Finding("restriction_lost", message, line))
        return None
    if values := scanned(spaced):
        message = f"{reason}, only name and description could be read"
        findings.append(Finding("line_scan", message, line))
        return Mapping(dict(values), {}, ())
    findings.append(Finding("invalid", reason, line))
    return None


def _is_on_its_line(inside: str, number: int) -> bool:
    """Whether the value of the key in this line begins behind it, as text in brackets does."""
    return bool(inside.split("\n")[number - 1].partition(":")[2].strip())
