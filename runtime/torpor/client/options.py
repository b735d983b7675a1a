"""How patient the client is."""

import msgspec


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, bytes and counts."""

    open_deadline_s: float = 10.0
    """Within which a connection opens."""
    send_deadline_s: float = 20.0
    """Within which the server takes one frame; after it the connection is cut and made again."""
    close_deadline_s: float = 2.0
    """How long a closing handshake may take."""
    ping_interval_s: float = 20.0
    """Between two questions whether the server is still there."""
    ping_deadline_s: float = 20.0
    """Within which it answers; after it the connection is made again."""
    token_deadline_s: float = 30.0
    """Within which a function that gives tokens gives one."""
    backoff_s: float = 0.1
    """Before the first attempt to connect again; doubles with each failure in a row."""
    backoff_max_s: float = 2.0
    """The longest such wait, less up to half of it by chance: what a person waits at most for a server that is back."""
    stable_s: float = 5.0
    """A connection that lasted this long was none of the failures in a row."""
    frame_bytes_max: int = 67_108_864
    """The longest frame taken from the server."""
    items_max: int = 512
    """Items of one watch that wait to be taken. Beyond it deltas are dropped, and events are asked for again later."""
