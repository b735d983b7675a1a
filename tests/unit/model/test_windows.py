"""How much a model holds, as far as that is known."""

import pytest

from torpor.model.windows import UNLISTED_TOKENS, window_of


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("claude-haiku-4-5", 200_000),
        ("claude-haiku-4-5-20251001", 200_000),
        ("claude-opus-4-6", 1_000_000),
        ("claude-opus-4-5", 200_000),
        ("claude-sonnet-5-5", 1_000_000),
        ("claude-sonnet-50", UNLISTED_TOKENS),
        ("some-local-model", UNLISTED_TOKENS),
    ],
)
def test_the_longest_name_that_fits_counts(model: str, tokens: int) -> None:
    assert window_of(model) == tokens


def test_what_the_agent_says_wins() -> None:
    assert window_of("claude-haiku-4-5", override=8_192) == 8_192
