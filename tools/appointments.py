"""The week's appointments, all of them made up, in ``clinic_data/appointments.json``."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from torpor import tool

Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class Appointment(msgspec.Struct, frozen=True, rename={"doctor": "with"}):
    """One line of the book."""

    day: Day
    time: str
    patient: str
    doctor: str
    reason: str


_FILE: Final = Path(__file__).parent / "clinic_data" / "appointments.json"


@tool(effect="read")
def find_appointments(patient: str = "", day: Day | None = None) -> str:
    """Find this week's appointments.

    Args:
        patient: A name or a part of it, in any case; without it, everybody.
        day: One day; without it, the whole week.
    """
    book = msgspec.json.decode(_FILE.read_bytes(), type=list[Appointment])
    found = [each for each in book if patient.casefold() in each.patient.casefold() and day in (None, each.day)]
    if not found:
        return "No appointment was found."
    return "\n".join(
        f"{each.day.capitalize()} {each.time}, {each.patient} with {each.doctor}: {each.reason}" for each in found
    )
