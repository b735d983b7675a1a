"""Bounds of the turn loop."""

import msgspec

from torpor.records.bounds import Amount, Count, Pause, Seconds


class TurnOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds and counts; the step limits are ``conversation.steps.StepOptions``."""

    model_calls_max: Count = 8
    """Model calls under way at once in this process; others wait their turn."""
    model_calls_per_owner_max: Amount = 0
    """Of these, one owner's at once; 0 for as many as there are. Owners take turns either way."""
    model_deadline_s: Seconds = 600.0
    """One model call, from asking to the complete reply."""
    lookback_deadline_s: Seconds = 5.0
    """Reading the exchanges that a message asks to have quoted; those found until then are."""
    cancel_grace_s: Pause = 5.0
    """How long a running write may go on before a cancelled turn settles it as unknown."""
