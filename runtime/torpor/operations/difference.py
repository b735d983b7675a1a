"""Two requests -> what changed from one to the other, as a unified difference that a person can read; pure.

A request is laid out as lines: one for each line of what was said, and for each field of what is not text. Headings
tell where in the request a line stands.
"""

import difflib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

CONTEXT_LINES: Final = 3
"""Unchanged ones shown around a change."""
_INDENT: Final = "    "


def laid_out(body: bytes) -> list[str]:
    """A request as lines, in the order in which hosts cache: what is none of the following, tools, system, messages."""
    request: dict[str, Any] = msgspec.json.decode(body)
    tools, system, messages = (request.pop(name, []) for name in ("tools", "system", "messages"))
    lines = [f"{name}: {_json(value)}" for name, value in sorted(request.items())]
    for tool in tools:
        lines += [f"tool {tool.get('name', '?')}", *_fields(tool)]
    for number, block in enumerate(system, start=1):
        lines += [f"system {number}", *_block(block)]
    for number, message in enumerate(messages, start=1):
        for block in message["content"]:
            lines += [f"message {number} {message['role']} {block.get('type', '?')}", *_block(block)]
    return lines


def difference(before: bytes, after: bytes) -> list[str]:
    """What changed from ``before`` to ``after``; empty when nothing did.

    Lines that begin with ``-`` were in the one, with ``+`` in the other; ``@@`` tells line numbers of both.
    """
    old, new = laid_out(before), laid_out(after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    # What both begin and end with is most of them, and comparing all lines with all lines is not cheap.
    skipped, kept = max(start - CONTEXT_LINES, 0), max(end - CONTEXT_LINES, 0)
    old, new = old[skipped : len(old) - kept], new[skipped : len(new) - kept]
    found = []
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        (_, old_begin, _, new_begin, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        removed = _range(skipped + old_begin, old_end - old_begin)
        added = _range(skipped + new_begin, new_end - new_begin)
        found.append(f"@@ -{removed} +{added} @@")
        for tag, from_old, to_old, from_new, to_new in group:
            if tag == "equal":
                found += [f" {line}" for line in old[from_old:to_old]]
            else:
                found += [f"-{line}" for line in old[from_old:to_old]]
                found += [f"+{line}" for line in new[from_new:to_new]]
    return found


def _range(begin: int, count: int) -> str:
    return f"{begin + (count > 0)},{count}"


def _common(old: list[str], new: list[str]) -> int:
    """How many lines both begin with."""
    for place, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return place
    return min(len(old), len(new))


def _block(block: dict[str, Any]) -> Iterator[str]:
    if isinstance(text := block.get("text"), str):
        yield from _text(text)
    yield from _fields({name: value for name, value in block.items() if name not in {"type", "text"}})


def _fields(fields: dict[str, Any]) -> Iterator[str]:
    for name, value in sorted(fields.items()):
        if isinstance(value, str) and "\n" in value:
            yield f"{_INDENT}{name}:"
            yield from (_INDENT + line for line in _text(value))
        else:
            yield f"{_INDENT}{name}: {_json(value)}"


def _text(text: str) -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield _INDENT + line


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
