"""One broken rule, and the order in which a host would find several."""

from collections.abc import Iterable
from typing import Final, NamedTuple

_FIELD_ORDER: Final = ("model", "max_tokens", "tools", "tool_choice", "system", "messages")


class Violation(NamedTuple):
    """One broken rule."""

    rule: str
    path: str
    """Dotted, with indexes from 0; empty for the request as a whole."""
    fact: str

    def __str__(self) -> str:
        return f"{self.path}: {self.fact}" if self.path else self.fact


def in_path_order(found: Iterable[Violation]) -> list[Violation]:
    """The request as a whole first, then field by field and index by index."""
    return sorted(found, key=_place)


def _place(violation: Violation) -> tuple[int, list[tuple[bool, int, str]]]:
    if not violation.path:
        return -1, []
    head, *rest = violation.path.split(".")
    rank = _FIELD_ORDER.index(head) if head in _FIELD_ORDER else len(_FIELD_ORDER)
    steps = [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in (head, *rest)]
    return rank, steps
