"""Who may read the numbers of a server, and where its traces go."""

from typing import Literal

import msgspec

from torpor.records.bounds import Pause


class MetricsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of ``/metrics``."""

    access: Literal["loopback", "operator", "open", "off"] = "loopback"
    """Who may read it. ``loopback``: anybody on this machine, as long as the server listens there only and nothing
    forwards to it; whoever else needs an operator's token."""


class TracingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry spans; all else about them is said by the ``OTEL_*`` variables that its own libraries read."""

    exporter: Literal["off", "otlp", "console"] = "off"
    """Where they go; ``console`` writes them to standard error."""
    conversations: Literal["hashed", "plain", "left_out"] = "hashed"
    """How a span names its conversation."""
    stop_deadline_s: Pause = 5.0
    """At the end of the server, for sending what is left."""
