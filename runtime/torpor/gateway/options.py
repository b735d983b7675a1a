"""How much the gateway takes from one client, and how long it waits for it."""

from typing import Literal

import msgspec

from torpor.records.bounds import Amount, Count, Pause, Port, Rate, Seconds


class GatewayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds, bytes and counts; of one connection unless said otherwise."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Port = 8765
    """0 lets the system choose one."""
    tls: Literal["here", "terminated"] = "here"
    """Where it ends: here, once there is a certificate, or at a proxy before this server. An address that others can
    reach needs one of them."""
    tls_certificate: str = ""
    """A PEM file with the server's certificate and those that vouch for it; read again when it changes. Its path begins
    at the home."""
    tls_key: str = ""
    """A PEM file with its private key, without a password."""
    origins: tuple[str, ...] = ()
    """Web pages that may connect, like ``https://app.example.org``; this server's own may, and so may programs."""
    connections_max: Count = 10_000
    """Of the whole server, or as many as the process may have open files for; one more is answered with HTTP 503."""
    connections_per_principal_max: Count = 100
    """Of one person, over all their devices and tabs; one more is closed with 4430."""
    connections_retry_s: Pause = 10.0
    """What a client with too many of them is told to wait."""
    backlog: Count = 100
    """Connections of the whole server that the system keeps until they are taken, and that are taken at once."""

    frame_bytes_max: Count = 1_048_576
    """A longer frame from a client closes its connection."""
    frames_per_s: Rate = 50.0
    """From one person over all their connections, in the long run; one more is answered with ``too_many_frames``."""
    frames_burst: Count = 500
    """Of them at once. Who goes on until as many were refused is closed with 4431."""
    control_frames_per_s: Rate = 50.0
    """Pings, pongs, and pieces of a message but the last, in the long run; they are never refused."""
    control_frames_burst: Count = 500
    """Of them at once. One more closes the connection with 4431, before hello with 4413."""
    message_bytes_max: Count = 262_144
    """Of a message's text in UTF-8; a longer one is refused."""
    context_bytes_max: Count = 65_536
    """Of a working context as JSON; a longer one is refused. How much of it a model sees is another matter."""
    conversations_per_owner_max: Count = 10_000
    """Conversations that one owner may have, archived ones included; one more is refused."""
    subscriptions_max: Count = 64
    """Conversations watched at once."""
    requests_max: Count = 64
    """Requests waiting for their answer; one more is answered with ``busy``."""
    busy_retry_s: Pause = 0.5
    """What a client with too many of them is told to wait."""
    unavailable_retry_s: Pause = 1.0
    """What a client is told to wait when the store could not be read for it."""

    hello_deadline_s: Seconds = 10.0
    """Within which a client says who it is."""
    held_frames_max: Count = 32
    """Frames kept until then; more of them close the connection."""
    held_bytes_max: Count = 262_144
    """Their size together."""
    idle_timeout_s: Seconds = 3600.0
    """A connection that watches nothing and says nothing for this long is closed with 4432."""
    token_leeway_s: Pause = 5.0
    """How far the clock of whoever made a token may differ from ours."""

    outbox_frames_max: Count = 512
    """Frames waiting to be sent."""
    outbox_bytes_max: Count = 1_048_576
    """Their size together; a frame that is larger by itself waits alone."""
    delta_bytes_max: Count = 16_384
    """Deltas that wait are joined into one frame up to this length."""
    delta_interval_s: Pause = 0.04
    """Between two frames of deltas; the first one of a reply leaves at once, and so do all when anything else comes."""
    send_deadline_s: Seconds = 20.0
    """Within which a client takes one frame from us; after it the connection is cut."""
    slow_deadline_s: Seconds = 300.0
    """A client that did not catch up for this long since something found no room is closed with 4429."""
    close_deadline_s: Seconds = 2.0
    """How long a closing handshake may take before the connection is cut."""
    ping_interval_s: Seconds = 20.0
    """Between two questions whether the client is still there."""
    ping_deadline_s: Seconds = 20.0
    """Within which it answers; after it the connection is closed."""
    sweep_s: Seconds = 5.0
    """Between two looks at who has not said hello and whose token has expired."""

    downloads_max: Count = 64
    """Files that are fetched by their links at once, of the whole server; one more is answered with HTTP 503."""
    downloads_per_owner_max: Count = 16
    """Of those, files of one owner, whoever fetches them."""
    downloads_retry_s: Pause = 5.0
    """What a client beyond them is told to wait."""
    download_stall_s: Seconds = 30.0
    """Within which a client takes the next 64 KiB of a file; after it the connection is cut."""

    reopened_after_s: Seconds = 28_800.0
    """A conversation that nobody used for longer is looked after when somebody opens it; see ``[live_context]``."""
    replay_page: Count = 128
    """Records read from a journal at once."""
    reads_max: Count = 16
    """Such reads of the whole server in one moment; more of them wait, so that a crowd of clients holds up nobody."""
    replay_events_max: Amount = 10_000
    """Events that a cursor may be behind and still be continued; behind more of them it is answered by ``reload``."""
    replay_age_max_s: Seconds = 2_592_000.0
    """The oldest event that is replayed; a cursor before an older one is answered by ``reload``."""
    reload_events_max: Amount = 200
    """The latest events that come with ``reload``."""
    reload_bytes_max: Count = 524_288
    """Their size together; the oldest are left out beyond it."""
    list_rows_max: Count = 500
    """Rows in one answer; the client asks for those behind them."""
    result_bytes_max: Count = 524_288
    """Size of the rows in one answer; at least one row is given."""
    hibernate_deadline_max_s: Pause = 300.0
    """The longest that a hibernate waits for a running turn."""
    drain_deadline_max_s: Pause = 3600.0
    """The longest that a drain may be told to wait for running turns."""
