"""How many bytes a token has, for each model: learnt from what hosts report, forgotten when the process ends.

Only what is new since the last report is ever estimated, so a first guess that is far off does little harm.
"""

from typing import Final

from torpor.conversation.budget import BYTES_PER_TOKEN

MODELS_MAX: Final = 64
"""Models remembered; the one not heard of for longest goes first."""
BOUNDS: Final = (1.0, 12.0)
"""Bytes per token beyond which a report is not believed."""
_WEIGHT: Final = 0.25
"""Of the newest report."""


class Calibration:
    """Shared by the conversations of a process."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def bytes_per_token(self, model: str) -> float:
        return self._ratios.get(model, float(BYTES_PER_TOKEN))

    def learn(self, model: str, *, size_bytes: int, tokens: int) -> None:
        """Take in that a request of ``size_bytes`` was counted as ``tokens``; nothing of one without a count."""
        if tokens <= 0 or size_bytes <= 0:
            return
        low, high = BOUNDS
        told = min(max(size_bytes / tokens, low), high)
        before = self._ratios.pop(model, None)
        if len(self._ratios) >= MODELS_MAX:
            del self._ratios[next(iter(self._ratios))]
        self._ratios[model] = told if before is None else before + _WEIGHT * (told - before)

    def __repr__(self) -> str:
        return f"<Calibration models={len(self._ratios)}>"
