"""Names that keys, paths and URLs can hold."""

import pytest

from torpor.records.ids import CONVERSATION_ID, OWNER_ID, ConversationKey


@pytest.mark.parametrize("name", ["c", "c_1", "A-z_09", "x" * 64])
def test_a_conversation_is_named_by_letters_digits_dashes_and_underscores(name: str) -> None:
    assert CONVERSATION_ID.fullmatch(name)


@pytest.mark.parametrize("name", ["", "x" * 65, "a b", "a/b", "a.b", "é", "a\n", "../a"])
def test_other_names_of_conversations_are_refused(name: str) -> None:
    assert not CONVERSATION_ID.fullmatch(name)


@pytest.mark.parametrize("name", ["ann", "ann@example.org", "o:1|2", "é", "x" * 128])
def test_an_owner_is_named_by_anything_visible_but_a_slash(name: str) -> None:
    assert OWNER_ID.fullmatch(name)


@pytest.mark.parametrize("name", ["", "x" * 129, "a/b", "a b", "a\n", "a\x00", "\x7f"])
def test_other_names_of_owners_are_refused(name: str) -> None:
    assert not OWNER_ID.fullmatch(name)


def test_a_key_is_written_as_a_path_and_ordered_by_its_parts() -> None:
    key = ConversationKey("acme", "ann", "c_1")
    assert key.path == "acme/ann/c_1"
    assert min(key, ConversationKey("b", "a", "a"), ConversationKey("a", "b", "a")).tenant == "a"
    assert {key: 1}[ConversationKey("acme", "ann", "c_1")] == 1
