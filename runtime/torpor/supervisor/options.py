"""How many actors live, when they sleep, how leases live, how crashes are answered; how long conversations are kept."""

import msgspec

from torpor.records.bounds import Amount, Count, Pause, Seconds, Share


class SupervisorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, counts, bytes and shares."""

    idle_timeout_s: Pause = 300.0
    """An actor that had nothing to do for this long hibernates."""
    live_max: Count = 2_000
    """Actors in memory; above it the one that rested longest makes room, and without one the answer is ``busy``."""
    memory_max_bytes: Amount = 0
    """Resident memory of the process, above which actors at rest hibernate and none is started; 0 for no bound."""
    memory_share: Share = 0.8
    """The same as a share of what the process's control group (a container) may use, where that has a limit."""
    thaws_max: Count = 32
    """Conversations that are being loaded at once; others wait their turn, owner by owner."""
    busy_retry_after_s: Pause = 1.0
    """What a client is told to wait when there is no room for its conversation; more, the more of them there are."""
    busy_retry_after_max_s: Pause = 30.0
    """The longest such wait."""
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
    crashes_max: Count = 20
    """Crashes within ``crash_window_s``, whatever was committed between them, before it is quarantined."""
    crash_window_s: Seconds = 300.0
    """For how long a crash counts."""
    fork_records_max: Count = 20_000
    """Records that a fork copies; one that needs more is refused."""
    cut_deadline_s: Seconds = 10.0
    """How long an actor that is quarantined may take to end, once it is cut off."""
    unavailable_retry_after_s: Pause = 1.0
    """What a client is told to wait when its command met a crash or a drain."""
    stop_deadline_s: Pause = 10.0
    """Within which turns come to the end of their step when the process stops; what takes longer is cut off and goes on
    at the next start."""


class RetentionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Days, counts and seconds. What runs, is due or is quarantined is kept."""

    age_days: Amount = 0
    """A conversation in which nothing happened for this many days is deleted; 0 for never."""
    archived_days: Amount = 0
    """The same for archived ones, where that is sooner; 0 for never."""
    per_owner_max: Amount = 0
    """Conversations of one owner that are kept, those in which something happened last, archived ones included; 0 for
    all."""
    look_s: Seconds = 3600.0
    """Between two looks at what is to be deleted; the first one is at the start."""
    pause_s: Pause = 0.25
    """Between two deletions, so that they hold nobody up."""

    @property
    def keeps_everything(self) -> bool:
        return not (self.age_days or self.archived_days or self.per_owner_max)
