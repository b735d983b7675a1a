"""When actors sleep, how leases live, how crashes are answered."""

import msgspec

from torpor.records.bounds import Count, Pause, Seconds


class SupervisorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds and counts."""

    idle_timeout_s: Pause = 300.0
    """An actor that had nothing to do for this long hibernates."""
    pack_after_s: Pause = 10.0
    """An idle actor packs its history into one piece of memory after this long."""
    sweep_s: Seconds = 2.0
    """Between two looks at idle actors, leases and what is due."""
    lease_ttl_s: Seconds = 10.0
    """A lease that is not renewed for this long may be taken over; embedded stores do not use it."""
    due_batch: Count = 64
    """Conversations claimed from what is due at one look, so that a restart thaws at a limited rate."""
    restart_backoff_s: Pause = 0.1
    """Before an actor that crashed is started again; doubles with each crash in a row."""
    restart_backoff_max_s: Pause = 5.0
    """The longest such wait."""
    restarts_max: Count = 10
    """Crashes in a row, without a commit between them, before the conversation is quarantined."""
    unavailable_retry_after_s: Pause = 1.0
    """What a client is told to wait when its command met a crash or a drain."""
    stop_deadline_s: Pause = 10.0
    """How long actors may take to leave when the process stops; then they are cut off and go on at the next start."""
