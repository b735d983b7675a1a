"""The working context: what the application says of the user's screen and task, beside the messages.

Every part carries a sensitivity label; an agent sees the labels that its definition names and no others.
"""

from typing import Annotated, Final

import msgspec

Label = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_-]{1,32}\Z")]
"""How sensitive a part is, in the words of the application."""
Reference = Annotated[str, msgspec.Meta(pattern=r"^[\w.:@/-]{1,128}\Z")]
"""A type, an id or a version of a record elsewhere."""

DEFAULT_LABEL: Final = "internal"
"""Of a part whose sender names none."""
DEFAULT_LABELS: Final = ("public", "internal", "personal")
"""What an agent sees unless its definition says otherwise."""
ACTIONS_MAX: Final = 50
"""Recent actions that one update may carry; fewer are shown."""


class ContextPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of free text."""

    text: str
    label: Label = DEFAULT_LABEL


class SelectedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the user has selected: a reference, and as much of it as the application wants to show."""

    type: Reference
    id: Reference
    version: Reference = "1"
    text: str = ""
    label: Label = DEFAULT_LABEL


class WorkingContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it; each update replaces the one before."""

    record: SelectedRecord | None = None
    screen: ContextPart | None = None
    role: ContextPart | None = None
    plan: ContextPart | None = None
    """An outline of what the user is about to do."""
    actions: Annotated[tuple[ContextPart, ...], msgspec.Meta(max_length=ACTIONS_MAX)] = ()
    """What was done lately, the latest last."""

    @property
    def selection(self) -> tuple[str, str] | None:
        """Type and id of the selected record; None when nothing is selected."""
        return (self.record.type, self.record.id) if self.record is not None else None
