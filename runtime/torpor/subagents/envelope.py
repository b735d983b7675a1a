"""A plan as it leaves its sub-agent: who, what for, what is done and when it is looked at again; or questions."""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from torpor.subagents.catalogue import ID_CHARS_MAX

NEEDS_CLARIFICATION: Final = "needs_clarification"
"""The key that is there in place of a plan."""
GOALS_MAX: Final = 6
INTERVENTIONS_MAX: Final = 8
EVIDENCE_MAX: Final = 8
"""Of one intervention."""
QUESTIONS_MAX: Final = 5

Reference: TypeAlias = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}\Z",
        description="the reference of the notes and never a name: 1 to 64 letters, digits, '.', '_', ':', '/' or '-'",
    ),
]
Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARS_MAX)]
Short: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=240)]
Long: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=600)]
Told: TypeAlias = Annotated[str, msgspec.Meta(max_length=240)]
"""Of the catalogue; what a sub-agent writes there counts for nothing."""
Weeks: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=104)]
"""From the day of the plan."""


class Goal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What should be different by when."""

    id: Id
    """Its own within the plan, such as g1."""
    text: Short
    problem: Id
    """A code of the catalogue."""
    due_in_weeks: Weeks


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of a contraindication. Plans hold absent ones only; the others make one unacceptable."""

    id: Id
    status: Literal["absent", "present", "unknown"]
    basis: Short
    """Where in the notes that is said."""


class Planned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An intervention of the plan."""

    id: Id
    """Of the catalogue, as is ``dose_option``."""
    dose_option: Id
    goal_ids: Annotated[tuple[Id, ...], msgspec.Meta(min_length=1, max_length=GOALS_MAX)]
    rationale: Long
    contraindications_checked: Annotated[tuple[Check, ...], msgspec.Meta(max_length=10)] = ()
    """Each that the catalogue names for it, and no other."""
    evidence_ids: Annotated[tuple[Id, ...], msgspec.Meta(max_length=EVIDENCE_MAX)] = ()
    """Of findings of the sub-agent."""
    title: Told = ""
    dose: Told = ""
    cautions: Annotated[tuple[Told, ...], msgspec.Meta(max_length=10)] = ()


class FollowUp(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and how somebody looks whether it works."""

    in_weeks: Weeks
    text: Short


class Envelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole plan."""

    patient_ref: Reference
    """Opaque: nothing is looked up by it here."""
    summary: Long
    goals: Annotated[tuple[Goal, ...], msgspec.Meta(min_length=1, max_length=GOALS_MAX)]
    interventions: Annotated[tuple[Planned, ...], msgspec.Meta(min_length=1, max_length=INTERVENTIONS_MAX)]
    follow_up: FollowUp


class Questions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What has to be known before there can be a plan."""

    questions: Annotated[tuple[Short, ...], msgspec.Meta(min_length=1, max_length=QUESTIONS_MAX)]


class NeedsClarification(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes in place of a plan."""

    needs_clarification: Questions
