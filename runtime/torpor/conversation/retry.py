"""When a model call that failed is asked again: a pure decision, bounded per turn.

Only while nothing of the reply was shown: what a person has read is never silently replaced.
"""

import msgspec

from torpor.records.bounds import Amount, Pause


class RetryOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts and seconds; of one turn."""

    retries_max: Amount = 6
    """Model calls that may be asked again in one turn."""
    base_s: Pause = 0.5
    """The first pause; doubles with each failure in the turn."""
    pause_max_s: Pause = 30.0
    """The longest pause of our own choice."""
    retry_after_max_s: Pause = 60.0
    """The longest that a host's wish to wait is honoured."""
    fallback_after: Amount = 2
    """Failures in one turn after which the agent's fallback model is asked, where it names one."""


def pause_s(options: RetryOptions, *, failures: int, retry_after_s: float | None, jitter: float) -> float | None:
    """Seconds until the call is asked again; None when the turn has used up its retries.

    Args: failures: calls of this turn that failed before this one.  retry_after_s: what the host asked for.
        jitter: 0 up to 1, different for each call, so that those who failed together do not come back together.
    """
    if failures >= options.retries_max:
        return None
    if retry_after_s is not None:
        return min(retry_after_s, options.retry_after_max_s) * (1 + 0.1 * jitter)
    pause = min(options.pause_max_s, options.base_s * 2.0**failures)
    return pause * (0.5 + 0.5 * jitter)
