"""The ids of a plan stand for something, and go together."""

from typing import Any

import pytest

from tests.unit.subagents.plan_parts import CATALOGUE, PLAN, a_plan, with_intervention
from torpor.subagents.plan_check import id_faults

ABSENT = {"id": "seizures", "status": "absent", "basis": "asked"}
GOAL = PLAN["goals"][0]
OF_KNEE = {**GOAL, "id": "g2", "problem": "knee-pain"}


def told(value: dict[str, Any]) -> list[str]:
    return [str(fault) for fault in id_faults(value, CATALOGUE)]


def checked(*checks: dict[str, str]) -> dict[str, Any]:
    return with_intervention(contraindications_checked=list(checks))


def test_a_plan_whose_ids_are_all_known_has_no_fault() -> None:
    assert told(PLAN) == []


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (
            with_intervention(id="sleep-dairy"),
            "interventions[0].id is 'sleep-dairy', expected an id of the catalogue; the nearest: 'sleep-diary'",
        ),
        (with_intervention(id="zzz"), "interventions[0].id is 'zzz', expected an id of the catalogue"),
        (
            with_intervention(dose_option="daily"),
            "interventions[0].dose_option is 'daily', expected one of 'gentle', 'strict'",
        ),
        (
            with_intervention(goal_ids=["g1", "g7"]),
            "interventions[0].goal_ids[1] is 'g7', expected the id of a goal of this plan: 'g1'",
        ),
        (
            with_intervention(goal_ids=["g2"]) | {"goals": [GOAL, OF_KNEE]},
            "interventions[0].goal_ids is for 'knee-pain', expected a goal with a problem that 'short-nights' is for:"
            " 'insomnia', 'low-mood'",
        ),
        (
            a_plan(goals=[{**GOAL, "problem": "insomnai"}]),
            "goals[0].problem is 'insomnai', expected a problem of the catalogue; the nearest: 'insomnia'",
        ),
        (a_plan(goals=[GOAL, GOAL]), "goals[1].id is 'g1', expected another id, since goals[0] has it"),
        (
            a_plan(interventions=[PLAN["interventions"][0]] * 2),
            "interventions[1].id is 'short-nights', expected another id, since interventions[0] has it",
        ),
        (
            checked({**ABSENT, "status": "present"}),
            "interventions[0].contraindications_checked[0].status is 'present', expected 'absent': leave the"
            " intervention 'short-nights' out",
        ),
        (
            checked({**ABSENT, "status": "unknown"}),
            "interventions[0].contraindications_checked[0].status is 'unknown', expected 'absent': leave the"
            " intervention 'short-nights' out, or ask by needs_clarification",
        ),
        (
            checked(),
            "interventions[0].contraindications_checked is without 'seizures', expected every contraindication of"
            " 'short-nights' checked",
        ),
        (
            checked(ABSENT, ABSENT),
            "interventions[0].contraindications_checked[1].id is 'seizures', expected each of 'seizures' once, as the"
            " catalogue has it for 'short-nights'",
        ),
        (
            checked(ABSENT, {**ABSENT, "id": "pregnancy"}),
            "interventions[0].contraindications_checked[1].id is 'pregnancy', expected each of 'seizures' once, as the"
            " catalogue has it for 'short-nights'",
        ),
        (
            with_intervention(id="sleep-diary", dose_option="two-weeks"),
            "interventions[0].contraindications_checked[0].id is 'seizures', expected none, as the catalogue has it for"
            " 'sleep-diary'",
        ),
    ],
)
def test_an_id_that_stands_for_nothing_is_told_with_what_would(plan: dict[str, Any], said: str) -> None:
    assert told(plan) == [said]


def test_one_goal_that_an_intervention_is_for_is_enough() -> None:
    assert told(with_intervention(goal_ids=["g2", "g1"]) | {"goals": [GOAL, OF_KNEE]}) == []


@pytest.mark.parametrize(
    "plan",
    [
        {},
        a_plan(goals=None, interventions="none"),
        a_plan(interventions=[3, {"id": "zzz"}]),
        a_plan(goals=[GOAL, {"id": 5}]) | {"interventions": with_intervention(goal_ids=["g9"])["interventions"]},
    ],
)
def test_parts_that_are_out_of_shape_are_passed_over(plan: dict[str, Any]) -> None:
    assert told(plan) == []


def test_an_index_counts_parts_that_are_out_of_shape() -> None:
    plan = with_intervention(id="zzz")
    assert told(plan | {"interventions": [3, *plan["interventions"]]}) == [
        "interventions[1].id is 'zzz', expected an id of the catalogue"
    ]
