"""How much background work runs, for how long, and how often it is tried."""

import msgspec

from torpor.records.bounds import Count, Pause, Seconds


class JobOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds and counts."""

    concurrency: Count = 4
    """Jobs that run at once."""
    owner_concurrency: Count = 2
    """Of these, one owner's; less than all, so that there is always a place for the others."""
    deadline_s: Seconds = 120.0
    """One attempt, for a kind that says nothing else; it is cut off then, which counts as a failure."""
    attempts_max: Count = 5
    """Attempts before a job is a dead letter, those included that ended with their process."""
    backoff_s: Seconds = 5.0
    """Before the second attempt; doubles with each further one."""
    backoff_max_s: Seconds = 600.0
    """The longest such pause."""
    poll_s: Seconds = 30.0
    """Between two looks at what is due when nothing was heard of; a new job is heard of at once."""
    store_retry_s: Seconds = 1.0
    """Before a store that could not write is asked again; doubles up to ``poll_s``."""
    lag_warning_s: Pause = 300.0
    """A job that is due for longer is told of in the log; 0 tells of none."""
    stop_deadline_s: Pause = 5.0
    """How long running jobs may take to end when the process stops; then they are cut off and stay due."""
