"""By which word clients hear of a sub-agent: the events of its life are named for what it is there for."""

from enum import StrEnum


class ToldAs(StrEnum):
    """``<word>.started``, ``<word>.progress`` and ``<word>.finished``."""

    SUBAGENT = "subagent"
    RESEARCH = "research"
    """It owes a research bundle."""

    @property
    def progress(self) -> str:
        """What it says in between."""
        return f"{self}.progress"
