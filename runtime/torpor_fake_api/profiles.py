"""How strictly requests are read: three readings of the same rules.

``default`` refuses what the API is known to refuse. ``strict`` adds what it may refuse, what hosts that imitate it
refuse, and what only a careless client sends. ``legacy`` is an API of some years ago, whatever the model.
"""

from typing import Any, Final

import msgspec

from torpor_fake_api.models import ModelFacts


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One reading."""

    name: str
    alternates: bool = False
    """Whether two neighbours of one role are refused; else they count as one message."""
    is_narrow: bool = False
    """Whether only the fields and sources of a plain request are known; else all of the API's own."""
    doubts: bool = False
    """Whether a rule that is only suspected is enforced."""
    tool_name_max: int | None = None
    """In place of the model's."""
    model: dict[str, Any] = {}
    """Facts that replace those of every model."""

    def facts(self, model: ModelFacts) -> ModelFacts:
        """``model`` as this profile sees it."""
        limit = {"tool_name_max": self.tool_name_max} if self.tool_name_max else {}
        return msgspec.structs.replace(model, **limit, **self.model)


DEFAULT: Final = Profile(name="default")
STRICT: Final = Profile(name="strict", alternates=True, is_narrow=True, doubts=True, tool_name_max=64)
LEGACY: Final = Profile(
    name="legacy",
    tool_name_max=64,
    model={
        "prefill": True,
        "thinking": frozenset({"enabled", "disabled"}),
        "sampling": "free",
        "system_messages": False,
        "refuses_overflow": True,
    },
)

PROFILES: Final = {profile.name: profile for profile in (DEFAULT, STRICT, LEGACY)}
