"""Requests and the window of their model."""

import pytest

from torpor_fake_api.models import MODELS
from torpor_fake_api.rules.window import room_for_reply, window_violation

OLD, NEW = MODELS["toy-4k-prefill"], MODELS["toy-4k"]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [(4000, None), (4001, "prompt is too long: 4001 tokens > 4000 maximum")],
)
def test_a_prompt_larger_than_the_window_is_refused(tokens: int, text: str | None) -> None:
    found = window_violation(tokens, max_tokens=1000, model=NEW)

    assert (str(found) if found else None) == text


def test_an_old_model_refuses_what_may_not_fit_together_with_its_reply() -> None:
    found = window_violation(3001, max_tokens=1000, model=OLD)

    assert found is not None
    assert found.rule == "V-71"
    assert found.fact.startswith("input length and `max_tokens` exceed context limit: 3001 + 1000 > 4000")
    assert window_violation(3000, max_tokens=1000, model=OLD) is None


def test_a_new_model_replies_as_long_as_there_is_room() -> None:
    assert room_for_reply(3000, max_tokens=1000, model=NEW) == (1000, "max_tokens")
    assert room_for_reply(3001, max_tokens=1000, model=NEW) == (999, "model_context_window_exceeded")
