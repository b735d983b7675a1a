"""The file's rules as any OpenFeature client sees them."""

from collections.abc import Iterator

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.event import ProviderEvent, ProviderEventDetails
from openfeature.provider.no_op_provider import NoOpProvider

from torpor.flags.declared import Flag, Rule, parse_flags
from torpor.flags.file_provider import FileProvider

DOMAIN = "test-file-provider"
FLAGS = parse_flags('[flags.memory]\ndefault = true\n[[flags.memory.rules]]\nowner = "ada"\nvalue = false\n')


@pytest.fixture
def client() -> Iterator[OpenFeatureClient]:
    """A client of the provider, of which nothing is left afterwards."""
    api.set_provider_and_wait(FileProvider(FLAGS), DOMAIN)
    yield api.get_client(DOMAIN)
    api.set_provider(NoOpProvider(), DOMAIN)


def test_value_variant_and_reason_are_given(client: OpenFeatureClient) -> None:
    details = client.get_boolean_details("memory", True, EvaluationContext("x", {"owner": "ada"}))

    assert (details.value, details.variant, details.reason) == (False, "rule-1", "TARGETING_MATCH")
    assert client.get_boolean_details("memory", False).value


def test_flag_that_is_not_declared_is_not_found(client: OpenFeatureClient) -> None:
    details = client.get_boolean_details("tool.pay", False)

    assert (details.value, details.error_code) == (False, "FLAG_NOT_FOUND")


def test_flag_has_no_other_kind_of_value(client: OpenFeatureClient) -> None:
    kinds = [
        client.get_string_details("memory", "a"),
        client.get_integer_details("memory", 1),
        client.get_float_details("memory", 1.5),
        client.get_object_details("memory", {"a": 1}),
    ]

    assert [(details.value, details.error_code) for details in kinds] == [
        (value, "TYPE_MISMATCH") for value in ("a", 1, 1.5, {"a": 1})
    ]


def test_change_names_the_flags_it_concerns() -> None:
    told: list[tuple[ProviderEvent, list[str] | None]] = []
    provider = FileProvider(FLAGS)

    def emitted(_: object, event: ProviderEvent, details: ProviderEventDetails) -> None:
        told.append((event, details.flags_changed))

    provider.attach(emitted)

    provider.replace({**FLAGS, "live_context": Flag(default=False)})
    provider.replace({"memory": Flag(default=True, rules=(Rule(value=False),))})

    changed = ProviderEvent.PROVIDER_CONFIGURATION_CHANGED
    assert told == [(changed, ["live_context"]), (changed, ["live_context", "memory"])]
