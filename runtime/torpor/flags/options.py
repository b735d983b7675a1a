"""Where flags come from, and how long anybody waits for them."""

from typing import Any

import msgspec

from torpor.records.bounds import Count, Seconds


class FlagOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds and counts; all but ``contexts_max`` concern a provider from elsewhere."""

    provider: str = ""
    """``package.module:factory``, called for an OpenFeature provider; empty for the rules in ``config/flags.toml``."""
    provider_options: dict[str, Any] = {}
    """Keyword arguments of the factory."""
    start_deadline_s: Seconds = 10.0
    """For importing and starting the provider; a slower one becomes ready later, and defaults count until then."""
    deadline_s: Seconds = 1.0
    """The longest that a turn waits for flags nobody asked for yet."""
    refresh_s: Seconds = 30.0
    """Age at which what the provider said is asked for again, in the background."""
    retry_s: Seconds = 5.0
    """The same after a failure."""
    stop_deadline_s: Seconds = 2.0
    """For the provider's own shutdown."""
    threads_max: Count = 2
    """Calls of the provider under way at once, those that hang included."""
    contexts_max: Count = 4_096
    """Owners and agents whose decisions are kept; the one that was looked at longest ago leaves."""
