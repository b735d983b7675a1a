"""A part of the records that pin flags."""

import msgspec


class FlagDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a feature flag was found to be, and why."""

    key: str
    value: bool
    variant: str = ""
    reason: str = ""
