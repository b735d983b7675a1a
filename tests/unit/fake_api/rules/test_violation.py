"""Violations in the order in which a host would find them."""

from torpor_fake_api.rules.violation import Violation, in_path_order


def at(path: str) -> Violation:
    return Violation("V-00", path, "wrong")


def test_the_request_as_a_whole_comes_first_then_field_by_field_and_index_by_index() -> None:
    paths = [
        "",
        "model",
        "max_tokens",
        "tools.2.custom.name",
        "system",
        "messages.2.content.1.text",
        "messages.2.content.10.text",
        "messages.10",
        "thinking.type",
    ]

    assert [found.path for found in in_path_order(map(at, reversed(paths)))] == paths


def test_a_message_leads_with_the_path_where_there_is_one() -> None:
    assert (str(at("messages.0")), str(at(""))) == ("messages.0: wrong", "wrong")
