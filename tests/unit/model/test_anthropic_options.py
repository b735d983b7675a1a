"""What an agent's ``[model]`` table asks of each request, of the first model and of its fallback."""

from typing import Any

import pytest

from torpor.conversation.view import FALLBACK
from torpor.errors import ConfigError
from torpor.model.anthropic_options import AnthropicOptions, fallback_first, request_fields
from torpor.model.registry import anthropic_options

FIRST = {"effort": "high", "thinking": {"type": "adaptive"}}
FIRST_FIELDS = {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}


@pytest.mark.parametrize("url", ["https://ann:s3cret@host/v1", "https://s3cret@host"])
def test_a_host_with_a_password_is_refused_and_the_password_told_to_nobody(url: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.base_url.*key_file") as refused:
        options(base_url=url)
    assert "s3cret" not in str(refused.value)
    with pytest.raises(ConfigError, match="a URL of http or https") as refused:
        options(proxy=url.replace("https", "socks"))
    assert "s3cret" not in str(refused.value)
    assert options(proxy=url).proxy == url


@pytest.mark.parametrize(
    ("url", "part"), [("https://host/v1?key=s3cret", "query"), ("https://host#s3cret", "fragment")]
)
def test_a_host_with_a_query_or_a_fragment_is_refused_and_it_is_told_to_nobody(url: str, part: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.base_url is one with a {part}") as refused:
        options(base_url=url)
    assert "s3cret" not in str(refused.value)


def options(**table: Any) -> AnthropicOptions:
    return anthropic_options({"kind": "anthropic", "model": "first", **table}, where="config/agents/a.toml")


def test_what_is_not_set_is_left_out() -> None:
    assert request_fields(options()) == {}


def test_a_fallback_takes_what_the_first_model_has_unless_something_else_is_said() -> None:
    assert request_fields(options(fallback="second", **FIRST)) == FIRST_FIELDS


@pytest.mark.parametrize(
    ("own", "changes"),
    [
        ({"fallback_effort": "low"}, {"output_config": {"effort": "low"}}),
        ({"fallback_effort": ""}, {"output_config": None}),
        ({"fallback_thinking": {}}, {"thinking": None}),
        (
            {"fallback_thinking": {"type": "enabled", "budget_tokens": 1024}, "fallback_max_tokens": 2048},
            {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048},
        ),
    ],
)
def test_what_a_fallback_has_of_its_own_stands_beside_what_the_first_model_has(
    own: dict[str, Any], changes: dict[str, Any]
) -> None:
    fields = request_fields(options(fallback="second", **FIRST, **own))
    assert fields == FIRST_FIELDS | {FALLBACK: {"model": "second", **changes}}


def test_a_fallback_asked_first_has_its_own_and_no_fallback() -> None:
    asked = fallback_first(
        options(fallback="second", **FIRST, fallback_effort="", fallback_thinking={}, fallback_max_tokens=5)
    )
    assert asked == options(model="second")
    assert fallback_first(options(fallback="second", **FIRST)) == options(model="second", **FIRST)


@pytest.mark.parametrize(
    ("own", "found"),
    [({"fallback_effort": "low"}, "low"), ({"fallback_thinking": {}}, {}), ({"fallback_max_tokens": 5}, 5)],
)
def test_options_of_a_fallback_that_is_not_named_are_an_error(own: dict[str, Any], found: object) -> None:
    with pytest.raises(ConfigError) as caught:
        options(**own)
    assert str(caught.value) == (
        f"config/agents/a.toml: model.{next(iter(own))} is {found!r}, "
        "expected a model named by model.fallback, or no such key"
    )


def test_a_limit_of_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="fallback_max_tokens"):
        options(fallback="second", fallback_max_tokens=0)
