"""The files of a skill as a model is told of them, below the skill's text. PURE."""

from collections.abc import Sequence
from typing import NamedTuple


class Resource(NamedTuple):
    """A file of a skill other than its SKILL.md."""

    path: str
    """Relative to the skill's folder, with ``/``."""
    size_bytes: int


def listing_text(key: str, resources: Sequence[Resource], *, has_more: bool) -> str:
    """What stands below the text of the skill ``key``, the blank line before it included; empty without files."""
    if not resources and not has_more:
        return ""
    lines = [f"- {path} ({size_bytes:,} bytes)" for path, size_bytes in resources]
    if has_more:
        lines.append("- the list is incomplete: there are more files than are listed here")
    return "\n\n".join(("", f"Files of this skill, for read_skill_file with the name {key!r}:", "\n".join(lines)))
