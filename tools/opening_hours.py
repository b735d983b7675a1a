"""When the clinic is open."""

from typing import Final, Literal

from torpor import tool

Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

HOURS: Final[dict[Day, str]] = {
    "monday": "8:00 to 18:00",
    "tuesday": "8:00 to 18:00",
    "wednesday": "8:00 to 13:00",
    "thursday": "8:00 to 20:00",
    "friday": "8:00 to 16:00",
    "saturday": "closed",
    "sunday": "closed",
}


@tool(effect="read")
def opening_hours(day: Day | None = None) -> str:
    """Tell when the clinic is open.

    Args:
        day: One day; without it, the whole week.
    """
    return "\n".join(f"{name.capitalize()}: {hours}" for name, hours in HOURS.items() if day in (None, name))
