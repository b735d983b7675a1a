"""How the stores keep what they are given."""

from typing import Literal

import msgspec

from torpor.records.bounds import Amount, Count, Pause, Seconds


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


class BlobOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where bodies lie that are too large for a journal. Texts that are empty are not used; all but the first are for
    ``s3``."""

    kind: Literal["folder", "s3"] = "folder"
    """``folder``: in the data folder. ``s3``: in an object store that speaks the protocol of S3; needs the extra."""
    bucket: str = ""
    """It must be there."""
    prefix: str = ""
    """Before the names of all objects."""
    endpoint: str = ""
    """The address of a store that is not Amazon's."""
    region: str = "us-east-1"
    """Where the bucket is."""
    access_key_env: str = ""
    """The variable of the environment that holds the id of the key; empty for the credentials of the machine."""
    secret_key_env: str = ""
    """The variable that holds the key itself."""
    deadline_s: Seconds = 30.0
    """For one body, retries included."""
