"""What an agent's ``[model]`` table may say when its kind is ``anthropic``."""

from typing import Any, Final, Literal

import msgspec

from torpor.conversation.view import FALLBACK
from torpor.records.bounds import Count

Effort = Literal["", "low", "medium", "high", "xhigh", "max"]
FALLBACK_ONLY: Final = ("fallback_effort", "fallback_thinking", "fallback_max_tokens")
"""Options that mean nothing without a fallback."""


class AnthropicOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names, seconds and counts; of one agent."""

    kind: Literal["anthropic"]
    model: str
    """The model's id."""
    fallback: str = ""
    """Another model's id, asked when the first one's host fails and nothing was shown yet; empty for none."""
    fallback_effort: Effort | None = None
    """Of the fallback; empty leaves it to the model, None takes the first model's."""
    fallback_thinking: dict[str, Any] | None = None
    """Of the fallback; empty leaves it out, None takes the first model's."""
    fallback_max_tokens: Count | None = None
    """Of one reply of the fallback; None takes the agent's."""
    effort: Effort = ""
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


def request_fields(options: AnthropicOptions) -> dict[str, Any]:
    """Fields of every request that the options ask for. What differs for the fallback stands under ``FALLBACK``."""
    fields: dict[str, Any] = {}
    if options.thinking:
        fields["thinking"] = options.thinking
    if options.effort:
        fields["output_config"] = {"effort": options.effort}
    changes = _of_fallback(options)
    return {**fields, FALLBACK: {"model": options.fallback, **changes}} if changes else fields


def _of_fallback(options: AnthropicOptions) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if (effort := options.fallback_effort) is not None:
        changes["output_config"] = {"effort": effort} if effort else None
    if (thinking := options.fallback_thinking) is not None:
        changes["thinking"] = thinking or None
    if options.fallback_max_tokens is not None:
        changes["max_tokens"] = options.fallback_max_tokens
    return changes


def fallback_first(options: AnthropicOptions) -> AnthropicOptions:
    """The options of a host that asks the fallback as its first model."""
    changes: dict[str, Any] = {"model": options.fallback, "fallback": ""}
    if options.fallback_effort is not None:
        changes["effort"] = options.fallback_effort
    if options.fallback_thinking is not None:
        changes["thinking"] = options.fallback_thinking
    return msgspec.structs.replace(options, **changes, **dict.fromkeys(FALLBACK_ONLY))
