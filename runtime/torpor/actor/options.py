"""Bounds of one actor."""

import msgspec

from torpor.records.bounds import Amount, Count, Pause, Share


class ActorOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Counts, bytes and shares."""

    mailbox_capacity: Count = 64
    """Commands waiting for the actor; one more is answered ``busy``."""
    unprocessed_max: Count = 32
    """Messages accepted and not yet taken by a turn; one more is answered ``busy``."""
    context_updates_max: Count = 128
    """Updates of the context that are recorded between the beginnings of two turns; one more is answered
    ``too_many_updates``, and nothing is selected any more."""
    changes_max: Count = 128
    """Changes of title, of being archived and of the live context by hand that are recorded from one message to the
    next; one more is answered ``too_many_changes``."""
    busy_retry_after_s: Pause = 1.0
    """What a ``busy`` client is told to wait."""
    snapshot_share: Share = 0.5
    """A snapshot is due when the records since the last one exceed this share of it."""
    snapshot_min_bytes: Amount = 65_536
    """Below this much journal since the last snapshot none is due: folding it costs less than writing."""
    hibernation_share: Share = 0.25
    """At hibernation this share of both is enough, since the next thaw has to read and fold what is not in it."""
