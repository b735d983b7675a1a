"""What the ids of a plan stand for: the catalogue, or its own goals. Pure.

Below: the catalogue. Parts of a plan that are out of shape are passed over; those faults are told by ``shape``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from torpor.subagents.catalogue import Intervention, InterventionCatalogue, nearest
from torpor.subagents.envelope import GOALS_MAX, INTERVENTIONS_MAX, NEEDS_CLARIFICATION, Goal, Planned
from torpor.subagents.shape import Fault, faults_of, shown

T = TypeVar("T", bound=msgspec.Struct)


def id_faults(value: Mapping[str, Any], catalogue: InterventionCatalogue) -> Iterator[Fault]:
    """Ids that stand for nothing or do not go together, and contraindications that are not known to be absent.

    Args: value: a plan as JSON is decoded.
    """
    return _Check(catalogue, value).faults()


class _Check:
    """What the ids of a plan stand for; parts of the plan that are out of shape are passed over."""

    def __init__(self, catalogue: InterventionCatalogue, value: Mapping[str, Any]) -> None:
        self._catalogue = catalogue
        self._goals = _well_formed(value.get("goals"), Goal)
        self._planned = _well_formed(value.get("interventions"), Planned)
        goals = value.get("goals")
        self._has_all_goals = isinstance(goals, list) and len(goals) == len(self._goals)

    def faults(self) -> Iterator[Fault]:
        yield from _repeated([goal.id for goal in self._goals.values()], list(self._goals), part="goals")
        yield from _repeated(
            [planned.id for planned in self._planned.values()], list(self._planned), part="interventions"
        )
        for index, goal in self._goals.items():
            if goal.problem not in self._catalogue.problems:
                near = nearest(goal.problem, self._catalogue.problems)
                yield Fault(f"goals[{index}].problem", shown(goal.problem), _among("a problem of the catalogue", near))
        for index, planned in self._planned.items():
            yield from self._of_intervention(planned, place=f"interventions[{index}]")

    def _of_intervention(self, planned: Planned, *, place: str) -> Iterator[Fault]:
        entry = self._catalogue.get(planned.id)
        if entry is None:
            near = self._catalogue.nearest(planned.id)
            yield Fault(f"{place}.id", shown(planned.id), _among("an id of the catalogue", near))
        elif entry.dose(planned.dose_option) is None:
            doses = ", ".join(repr(option.id) for option in entry.dose_options)
            yield Fault(f"{place}.dose_option", shown(planned.dose_option), f"one of {doses}")
        if self._has_all_goals:
            yield from self._of_goals(planned, entry, place=place)
        if entry is not None:
            yield from _of_checks(planned, entry, place=f"{place}.contraindications_checked")

    def _of_goals(self, planned: Planned, entry: Intervention | None, *, place: str) -> Iterator[Fault]:
        problems = {goal.id: goal.problem for goal in self._goals.values()}
        strangers = [(at, id_) for at, id_ in enumerate(planned.goal_ids) if id_ not in problems]
        for at, id_ in strangers:
            yield Fault(f"{place}.goal_ids[{at}]", shown(id_), f"the id of a goal of this plan: {_listed(problems)}")
        if entry is None or strangers:
            return
        served = [problems[id_] for id_ in planned.goal_ids]
        known = [code for code in served if code in self._catalogue.problems]
        if len(known) == len(served) and not set(served) & set(entry.applies_to):
            expected = f"a goal with a problem that {entry.id!r} is for: {_listed(entry.applies_to)}"
            yield Fault(f"{place}.goal_ids", f"for {_listed(served)}", expected)


def _of_checks(planned: Planned, entry: Intervention, *, place: str) -> Iterator[Fault]:
    ids = [check.id for check in planned.contraindications_checked]
    own = f"each of {_listed(entry.contraindications)} once" if entry.contraindications else "none"
    for at, check in enumerate(planned.contraindications_checked):
        if check.id not in entry.contraindications or check.id in ids[:at]:
            yield Fault(f"{place}[{at}].id", shown(check.id), f"{own}, as the catalogue has it for {entry.id!r}")
        elif check.status == "present":
            yield Fault(f"{place}[{at}].status", "'present'", f"'absent': leave the intervention {entry.id!r} out")
        elif check.status == "unknown":
            expected = f"'absent': leave the intervention {entry.id!r} out, or ask by {NEEDS_CLARIFICATION}"
            yield Fault(f"{place}[{at}].status", "'unknown'", expected)
    if missing := [id_ for id_ in entry.contraindications if id_ not in ids]:
        yield Fault(place, f"without {_listed(missing)}", f"every contraindication of {entry.id!r} checked")


def _well_formed(items: Any, type_: type[T]) -> dict[int, T]:
    """Those of a list that are of a type, by their index; of more than any plan holds, the first ones."""
    most = max(GOALS_MAX, INTERVENTIONS_MAX)
    listed = items[:most] if isinstance(items, list) else []
    return {at: msgspec.convert(item, type_) for at, item in enumerate(listed) if not any(faults_of(item, type_))}


def _repeated(ids: Sequence[str], indexes: Sequence[int], *, part: str) -> Iterator[Fault]:
    for at, id_ in enumerate(ids):
        if id_ in ids[:at]:
            expected = f"another id, since {part}[{indexes[ids.index(id_)]}] has it"
            yield Fault(f"{part}[{indexes[at]}].id", shown(id_), expected)


def _among(what: str, near: Sequence[str]) -> str:
    return f"{what}; the nearest: {_listed(near)}" if near else what


def _listed(ids: Sequence[str] | Mapping[str, str]) -> str:
    return ", ".join(map(repr, ids))
