"""What an agent's ``[model]`` table may say when its kind is ``anthropic``."""

from typing import Any, Literal

import msgspec


class AnthropicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names, seconds and counts; of one agent."""

    kind: Literal["anthropic"]
    model: str
    """The model's id."""
    fallback: str = ""
    """Another model's id, asked when the first one's host fails and nothing was shown yet; empty for none."""
    effort: Literal["", "low", "medium", "high", "xhigh", "max"] = ""
    """How much the model may think, where it supports that; empty leaves it to the model."""
    thinking: dict[str, Any] = {}
    """The request's ``thinking`` field as the API takes it; empty leaves it out."""
    window_tokens: int = 0
    """The model's context window; 0 takes the engine's table."""
    base_url: str = "https://api.anthropic.com"
    """Any server that speaks the Messages API."""
    key_env: str = "ANTHROPIC_API_KEY"
    """The environment variable that holds the key."""
    key_file: str = ""
    """A file that holds the key, read at start; wins over the variable."""
    proxy: str = ""
    """Through which the host is reached; empty for none."""
    rehearsal: str = ""
    """Played, and said to be played, while there is no key; empty makes a missing key an error."""
    pace_cps: float | None = None
    """Characters per second of the rehearsal, where it is played; None leaves it to the rehearsal."""
    cache_ttl: Literal["5m", "1h", "off"] = "5m"
    """How long the host keeps the marked prefix."""
    connect_deadline_s: float = 10.0
    """To open a connection."""
    progress_deadline_s: float = 90.0
    """The longest silence within a reply; pings do not count as progress."""
