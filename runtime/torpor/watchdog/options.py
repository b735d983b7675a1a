"""When the event loop counts as held up."""

import msgspec

from torpor.records.bounds import Seconds


class WatchdogOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds."""

    lag_warn_s: Seconds = 1.0
    """An event loop that is late by this much is told in the log, with what held it up."""
    beat_s: Seconds = 0.25
    """Between two measurements of how late it is."""
