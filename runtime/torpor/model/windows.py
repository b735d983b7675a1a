"""How many tokens the context of a model holds, as far as it is known beforehand.

The table is what was published; a host that is asked knows better, and an agent's ``window_tokens`` wins over both.
"""

from typing import Final

_MILLION: Final = 1_000_000
_OLDER: Final = 200_000
LOCAL_TOKENS: Final = 8_192
"""Of a model on this machine, unless its table says otherwise: memory is taken for all of it."""

WINDOWS: Final = {
    "claude-fable-5": _MILLION,
    "claude-mythos-5": _MILLION,
    "claude-opus-5": _MILLION,
    "claude-sonnet-5": _MILLION,
    "claude-haiku-5": _MILLION,
    "claude-opus-4-8": _MILLION,
    "claude-opus-4-7": _MILLION,
    "claude-opus-4-6": _MILLION,
    "claude-sonnet-4-6": _MILLION,
    "claude-opus-4": _OLDER,
    "claude-sonnet-4": _OLDER,
    "claude-haiku-4": _OLDER,
    "local": LOCAL_TOKENS,
}
"""Tokens by the beginning of the model's id; the longest that fits counts."""

UNLISTED_TOKENS: Final = _OLDER
"""For a model that nobody listed: small enough to be safe."""


def window_of(model: str, *, override: int = 0) -> int:
    """Tokens that a request to ``model`` and its reply may have together.

    Args: override: the agent's own figure; 0 for none.
    """
    if override:
        return override
    known = [name for name in WINDOWS if model == name or model.startswith(f"{name}-")]
    return WINDOWS[max(known, key=len)] if known else UNLISTED_TOKENS
