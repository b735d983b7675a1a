"""A small catalogue, the shipped one, and a plan of the small one."""

import copy
from pathlib import Path
from typing import Any

from torpor.subagents.catalogue import catalogue_from, load_catalogue

HOME = Path(__file__).parents[3]
SHIPPED = load_catalogue(HOME)
TABLES: dict[str, Any] = {
    "problems": {"insomnia": "Trouble sleeping", "knee-pain": "A knee that hurts", "low-mood": "Depression"},
    "contraindications": {"seizures": "Epilepsy"},
    "intervention": [
        {
            "id": "sleep-diary",
            "title": "Sleep diary",
            "summary": "Nights are written down.",
            "applies_to": ["insomnia"],
            "dose_options": [{"id": "two-weeks", "text": "Each morning for two weeks"}],
        },
        {
            "id": "short-nights",
            "title": "Short nights",
            "summary": "Time in bed is cut; a diary helps.",
            "applies_to": ["insomnia", "low-mood"],
            "dose_options": [{"id": "gentle", "text": "Six hours"}, {"id": "strict", "text": "Five hours"}],
            "cautions": ["No long drives."],
            "contraindications": ["seizures"],
        },
        {
            "id": "cycling",
            "title": "Cycling",
            "summary": "On a bicycle.",
            "applies_to": ["knee-pain"],
            "dose_options": [{"id": "daily", "text": "20 minutes a day"}],
        },
    ],
}
CATALOGUE = catalogue_from(TABLES, where="interventions.toml")
PLAN: dict[str, Any] = {
    "patient_ref": "pt-17",
    "summary": "Nights first.",
    "goals": [{"id": "g1", "text": "Sleeps six hours", "problem": "insomnia", "due_in_weeks": 6}],
    "interventions": [
        {
            "id": "short-nights",
            "dose_option": "gentle",
            "goal_ids": ["g1"],
            "rationale": "Nine hours in bed, five asleep.",
            "contraindications_checked": [{"id": "seizures", "status": "absent", "basis": "Asked today."}],
        }
    ],
    "follow_up": {"in_weeks": 2, "text": "Look at the diary"},
}


def a_plan(**changes: Any) -> dict[str, Any]:
    return copy.deepcopy(PLAN) | changes


def with_intervention(**changes: Any) -> dict[str, Any]:
    plan = a_plan()
    plan["interventions"][0] |= changes
    return plan
