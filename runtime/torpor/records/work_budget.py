"""What a sub-agent may use, as the first record of its journal tells it."""

import msgspec


class WorkBudget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of its own; those that it works for may have less left."""

    steps: int
    """Model calls."""
    tokens: int = 0
    """Of all its requests and replies, those of its own sub-agents included; 0 for no limit."""
    seconds: float
