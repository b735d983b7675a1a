"""Rules V-70 to V-72: whether a request of so many tokens fits the window of its model."""

from torpor_fake_api.models import ModelFacts
from torpor_fake_api.rules.violation import Violation


def window_violation(input_tokens: int, *, max_tokens: int, model: ModelFacts) -> Violation | None:
    """What is wrong with the size of a request; None when it may be answered."""
    window = model.window_tokens
    if input_tokens > window:
        return Violation("V-70", "", f"prompt is too long: {input_tokens} tokens > {window} maximum")
    if model.refuses_overflow and input_tokens + max_tokens > window:
        fact = f"input length and `max_tokens` exceed context limit: {input_tokens} + {max_tokens} > {window}"
        return Violation("V-71", "", f"{fact}, decrease input length or `max_tokens` and try again")
    return None


def room_for_reply(input_tokens: int, *, max_tokens: int, model: ModelFacts) -> tuple[int, str]:
    """How many tokens the reply may have, and the stop reason of one that had more."""
    left = model.window_tokens - input_tokens
    return (left, "model_context_window_exceeded") if left < max_tokens else (max_tokens, "max_tokens")
