"""Bounds of skills."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from torpor.records.bounds import Count, Seconds

_IndexBudget: TypeAlias = Annotated[int, msgspec.Meta(ge=64)]


class SkillOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tokens, bytes, counts and seconds; an agent's own index budget wins where it has one."""

    index_budget_tokens: _IndexBudget = 2_000
    """The index of skills in the system prompt; descriptions are shortened and skills left to a search beyond it."""
    file_cap_bytes: Count = 1_048_576
    """Of one SKILL.md; a larger one is not read."""
    bodies_cap_bytes: Count = 33_554_432
    """Of all skills' texts as they are kept, which is compressed; skills beyond it are not loaded."""
    resource_cap_bytes: Count = 1_048_576
    """Of one other file of a skill; a larger one is not read."""
    listing_max: Count = 200
    """Other files of a skill that are listed below its text."""
    scan_depth_max: Annotated[int, msgspec.Meta(ge=1, le=32)] = 6
    """Folders below a skills folder that are looked into, one inside the other."""
    scan_folders_max: Count = 20_000
    """Folders looked into altogether; what lies beyond is told and not loaded."""
    scan_deadline_s: Seconds = 60.0
    """Looking at all skills once, and reading one file of a skill."""
    watch: Literal["auto", "poll", "off"] = "auto"
    """How edits are noticed: by the system's notifications, by looking at every file, or not at all."""
    look_s: Seconds = 1.0
    """Between two looks for a folder that is not there yet, or at every file where that is how edits are noticed."""
