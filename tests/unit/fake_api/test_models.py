"""The table of models, and what the API tells of it."""

import msgspec
import pytest

from torpor_fake_api.models import MODELS, described, with_changes


def test_every_model_is_listed_under_its_own_id() -> None:
    assert {key: row.id for key, row in MODELS.items()} == {key: key for key in MODELS}


def test_a_change_replaces_fields_of_one_model_and_leaves_the_others() -> None:
    table = with_changes({"toy-4k": {"window_tokens": 500}, "mine": {"prefill": True, "thinking": ["adaptive"]}})

    assert (table["toy-4k"].window_tokens, table["toy-4k"].max_output_tokens) == (500, 1_500)
    assert (table["mine"].id, table["mine"].prefill, set(table["mine"].thinking)) == ("mine", True, {"adaptive"})
    assert MODELS["toy-4k"].window_tokens == 4_000
    assert "mine" not in MODELS


def test_a_field_that_no_model_has_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="windows"):
        with_changes({"toy-4k": {"windows": 3}})


def test_a_model_is_described_with_its_limits_and_its_ways_of_thinking() -> None:
    told = described(MODELS["claude-opus-4-5"])

    assert (told["max_input_tokens"], told["max_tokens"]) == (200_000, 64_000)
    assert told["display_name"] == "Claude Opus 4 5"
    supported = {mode for mode, how in told["capabilities"]["thinking"]["types"].items() if how["supported"]}
    assert supported == {"enabled", "disabled"}
