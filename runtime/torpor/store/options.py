"""How the stores keep what they are given."""

from typing import Literal

import msgspec

from torpor.records.bounds import Amount, Count, Pause


class StoreOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, bytes and counts."""

    synchronous: Literal["full", "normal"] = "full"
    """``full``: what is acknowledged survives a power cut. ``normal``: it survives a crash of the process only."""
    busy_timeout_s: Pause = 5.0
    """How long a write waits for another process that holds the database, before it is refused."""
    group_limit: Count = 256
    """Appends of different conversations that may share one flush."""
    wal_truncate_bytes: Amount = 4_194_304
    """When a conversation leaves or has its snapshot, a write-ahead log longer than this is folded into the database
    and emptied; a shorter one too when it outweighs a sixteenth of the database."""
