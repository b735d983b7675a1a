"""The view grows by text, shares what it can, and names every block in its chain."""

import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.conversation.view import FALLBACK, Preamble, Role, View, preamble_of, request_body
from torpor.records.blocks import canonical, text_block

ROLES: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant"])
SAID = st.tuples(ROLES, st.lists(st.text(max_size=5).map(text_block), max_size=3))


def messages(view: View) -> Any:
    return json.loads(view.messages())


def grown(*steps: tuple[Role, list[Any]]) -> View:
    view = View()
    for role, blocks in steps:
        view = view.extended(role, blocks)
    return view


def test_an_empty_view_has_no_messages() -> None:
    assert (View().messages(), View().text(), View().link, View().blocks) == (b"[]", b"", b"", 0)


def test_neighbours_of_one_role_share_a_message() -> None:
    view = grown(("user", [text_block("a")]), ("user", [text_block("b")]), ("assistant", [text_block("c")]))
    assert messages(view) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
    ]
    assert (view.role, view.blocks, view.size_bytes) == ("assistant", 3, len(view.text()))


def test_nothing_said_changes_nothing() -> None:
    view = grown(("user", [text_block("a")]))
    assert view.extended("assistant", ()) == view


def test_each_link_is_the_digest_of_the_link_before_and_the_block_with_its_role() -> None:
    first, second = text_block("a"), text_block("b")
    view = grown(("user", [first]), ("assistant", [second]))
    link = hashlib.sha256(canonical(["user", json.loads(bytes(first))])).digest()
    assert view.link == hashlib.sha256(link + canonical(["assistant", json.loads(bytes(second))])).digest()


@given(st.lists(SAID, max_size=8))
def test_the_text_is_canonical_json_of_the_messages(steps: list[tuple[Role, list[Any]]]) -> None:
    view = grown(*steps)
    assert view.messages() == bytes(canonical(messages(view)))
    assert view.size_bytes == len(view.text())


@given(st.lists(SAID, max_size=8), st.lists(SAID, max_size=4))
def test_a_longer_view_begins_with_the_text_of_a_shorter_one(
    steps: list[tuple[Role, list[Any]]], more: list[tuple[Role, list[Any]]]
) -> None:
    view = longer = grown(*steps)
    for role, blocks in more:
        longer = longer.extended(role, blocks)
    assert longer.text().startswith(view.text())


def test_extending_the_longest_view_shares_its_chunks() -> None:
    view = grown(("user", [text_block("a")]))
    assert view.extended("assistant", [text_block("b")]).chunks is view.chunks


def test_views_that_begin_empty_share_nothing_however_alike_they_are() -> None:
    assert View().extended("user", [text_block("a")]).chunks is not View().extended("user", [text_block("a")]).chunks
    assert View().chunks == []


def test_extending_a_shorter_view_by_what_follows_it_shares_the_chunks() -> None:
    view = grown(("user", [text_block("a")]))
    longer = view.extended("assistant", [text_block("b")]).extended("user", [text_block("c")])
    again = view.extended("assistant", [text_block("b")])
    assert again.chunks is longer.chunks
    assert (
        again.text() == b'{"content":[{"text":"a","type":"text"}],"role":"user"},{"content":[{"text":"b","type":"text"}'
    )


def test_extending_a_shorter_view_otherwise_leaves_the_longer_one_alone() -> None:
    view = grown(("user", [text_block("a")]))
    longer = view.extended("assistant", [text_block("b")])
    other = view.extended("assistant", [text_block("c")])
    assert [message["content"][0]["text"] for message in messages(longer)] == ["a", "b"]
    assert [message["content"][0]["text"] for message in messages(other)] == ["a", "c"]


def test_extending_a_shorter_view_by_more_than_follows_it_leaves_the_longer_one_alone() -> None:
    view = grown(("user", [text_block("a")]))
    longer = view.extended("user", [text_block("b")])
    other = view.extended("user", [text_block("b"), text_block("c")])
    assert [block["text"] for block in messages(longer)[0]["content"]] == ["a", "b"]
    assert [block["text"] for block in messages(other)[0]["content"]] == ["a", "b", "c"]


def test_a_packed_view_is_the_same_view_in_one_piece() -> None:
    view = grown(("user", [text_block("a")]), ("assistant", [text_block("b")]))
    packed = view.packed()
    assert packed == view
    assert len(packed.chunks) == 1
    assert packed.packed() is packed
    assert packed.extended("user", [text_block("c")]) == view.extended("user", [text_block("c")])


def test_views_differ_by_role_link_size_or_text() -> None:
    view = grown(("user", [text_block("a")]))
    tampered = View([view.text() + b"x"], 1, view.role, view.link, view.size_bytes, view.blocks)
    others = [grown(("user", [text_block("a")])), grown(("assistant", [text_block("a")])), tampered, "a view"]
    assert [view == other for other in others] == [True, False, False, False]


def test_equal_fields_give_an_equal_preamble_whatever_their_order() -> None:
    one = preamble_of({"model": "m", "max_tokens": 1})
    assert one == preamble_of({"max_tokens": 1, "model": "m"})
    assert one != preamble_of({"max_tokens": 2, "model": "m"})
    assert one.digest == hashlib.sha256(b'{"max_tokens":1,"model":"m"}').hexdigest()


def test_a_request_is_the_preamble_with_the_messages_in_canonical_order() -> None:
    view = grown(("user", [text_block("a")]))
    body = request_body(preamble_of({"model": "m", "tools": [], "max_tokens": 1}), view)
    assert body == b'{"max_tokens":1,"messages":%b,"model":"m","tools":[]}' % view.messages()
    assert request_body(Preamble(), View()) == b'{"messages":[]}'


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("", {"model": "m", "max_tokens": 1, "thinking": {"type": "adaptive"}}),
        ("second", {"model": "second", "max_tokens": 5}),
        ("third", {"model": "third", "max_tokens": 1, "thinking": {"type": "adaptive"}}),
    ],
)
def test_a_preamble_says_what_is_different_for_the_fallback(model: str, fields: dict[str, Any]) -> None:
    first = {"model": "m", "max_tokens": 1, "thinking": {"type": "adaptive"}}
    preamble = preamble_of(first | {FALLBACK: {"model": "second", "max_tokens": 5, "thinking": None}})
    assert msgspec.json.decode(request_body(preamble, View(), model=model)) == fields | {"messages": []}


def test_without_a_word_on_the_fallback_only_the_model_is_another() -> None:
    body = request_body(preamble_of({"model": "m", "max_tokens": 1}), View(), model="second")
    assert msgspec.json.decode(body) == {"model": "second", "max_tokens": 1, "messages": []}


def test_a_settled_view_is_the_same_view_with_its_end_in_one_piece() -> None:
    base = View().extended("user", [text_block("one")])
    longer = base.extended("assistant", [text_block("two")]).extended("user", [text_block("three")])
    settled = longer.settled(base)
    assert settled == longer
    assert settled.length < longer.length
    assert settled.extended("user", [text_block("four")]) == longer.extended("user", [text_block("four")])
    assert longer.messages() == settled.messages()
    assert settled.settled(base) is settled


def test_pieces_of_settled_views_double_so_that_few_are_left() -> None:
    view = loose = View()
    for number in range(256):
        blocks = [text_block(f"{number:03d}"), text_block("more")]
        loose = loose.extended("user", blocks)
        view = view.extended("user", blocks).settled(view)
    assert view == loose
    assert view.length <= 16
