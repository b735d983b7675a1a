"""Cache marks, in the order in which a request is rendered: tools, system, messages."""

from collections.abc import Iterator
from typing import Any, Final

from torpor_fake_api.rules.case import THINKS, Case, dicts, is_one_of
from torpor_fake_api.rules.violation import Violation

MARKS_MAX: Final = 4


def mark_violations(case: Case) -> Iterator[Violation]:
    """Rules V-61 to V-63."""
    marked = [block for block in _rendered(case) if block.get("cache_control") is not None]
    found = len(marked) + (case.body.get("cache_control") is not None)
    if found > MARKS_MAX:
        fact = f"A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {found}."
        yield Violation("V-61", "cache_control", fact)
    for block in marked:
        yield from _place(case, block)
    yield from _lives([*(block["cache_control"] for block in marked)])
    if not _is_mark(case.body.get("cache_control", {"type": "ephemeral"})):
        yield Violation("V-63", "cache_control", "is not a known kind of mark")


def _place(case: Case, block: dict[str, Any]) -> Iterator[Violation]:
    kind = block.get("type")
    if kind == "text" and not block.get("text"):
        yield Violation("V-62", "cache_control", "cache_control cannot be set for empty text blocks")
    if is_one_of(kind, THINKS) and case.profile.doubts:
        yield Violation("V-62", "cache_control", f"cache_control cannot be set for {kind} blocks")


def _lives(marks: list[Any]) -> Iterator[Violation]:
    is_short_before = False
    for mark in marks:
        if not _is_mark(mark):
            yield Violation("V-63", "cache_control.ttl", f"{mark!r} is not a known kind of mark")
        elif mark.get("ttl", "5m") == "5m":
            is_short_before = True
        elif is_short_before:
            fact = "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
            yield Violation("V-63", "cache_control.ttl", fact)


def _is_mark(mark: Any) -> bool:
    if mark is None:
        return True
    is_known = isinstance(mark, dict) and mark.keys() <= {"type", "ttl"} and mark.get("type") == "ephemeral"
    return is_known and is_one_of(mark.get("ttl", "5m"), {"5m", "1h"})


def _rendered(case: Case) -> Iterator[dict[str, Any]]:
    yield from dicts(case.body.get("tools"))
    yield from dicts(case.body.get("system"))
    for message in case.messages:
        for block in dicts(message.get("content")):
            yield block
            if block.get("type") == "tool_result":
                yield from dicts(block.get("content"))
