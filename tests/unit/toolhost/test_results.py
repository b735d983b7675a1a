import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.errors import ToolFailed
from torpor.toolhost.results import excerpt, fits, page, rendered


class Visit(msgspec.Struct):
    patient: str
    minutes: int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (None, "done"),
        (Visit("Ada", 5), '{"patient":"Ada","minutes":5}'),
        ([1, "zwei"], '[1,"zwei"]'),
        (float("nan"), "null"),
        (10**40, "1" + "0" * 40),
        ({"a\0b": "\x01"}, '{"a\\u0000b":"\\u0001"}'),
    ],
)
def test_a_result_becomes_text(value: object, text: str) -> None:
    assert rendered(value).text == text


def test_text_that_cannot_be_stored_is_replaced_visibly_and_counted() -> None:
    said = rendered("a\0b\ud800c")
    assert (said.text, said.replaced) == ("a\u2400b\ufffdc", 2)


def test_json_that_cannot_be_stored_is_replaced_all_through_and_counted() -> None:
    said = rendered({"\ud800": [Visit("\udfff", 1), ("x", "\ud83d\ude00")]})
    assert said.text == '{"\ufffd":[{"patient":"\ufffd","minutes":1},["x","\U0001f600"]]}'
    assert said.replaced == 2


def test_a_result_without_a_json_form_says_that_the_tool_ran() -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)
    for value in (object(), cyclic, 10**5000, {("a", "b"): 1}):
        with pytest.raises(ToolFailed, match=f"it ran to its end, but its result of type {type(value).__name__}"):
            rendered(value)


@given(st.text(), st.integers(0, 40))
def test_fitting_is_a_matter_of_utf8_bytes(text: str, cap_bytes: int) -> None:
    assert fits(text, cap_bytes=cap_bytes) == (len(text.encode()) <= cap_bytes)


CHARACTERS = st.sampled_from("ab\n\u00e9\u20ac\U0001f600\u200d\U0001f468")


@given(st.lists(CHARACTERS, min_size=100, max_size=120).map("".join), st.integers(240, 270))
def test_an_excerpt_is_head_and_tail_within_the_cap(text: str, cap_bytes: int) -> None:
    whole = (text * 4).encode()
    shown = excerpt(whole, cap_bytes=cap_bytes, handle="f" * 64)
    assert len(shown.encode()) <= cap_bytes
    head, _, rest = shown.partition("\n[bytes ")
    note, _, tail = rest.partition("reads on]\n")
    assert whole.decode().startswith(head)
    assert whole.decode().endswith(tail)
    assert len(head) >= len(tail) > 0
    begin, end = len(head.encode()), len(whole) - len(tail.encode())
    assert note.startswith(f"{begin} to {end} of {len(whole)} are left out; ")
    assert f'handle="{"f" * 64}" and offset={begin} ' in note


@given(st.lists(CHARACTERS, min_size=1).map("".join), st.integers(4, 9))
def test_pages_read_one_after_the_other_are_the_whole(text: str, size_bytes: int) -> None:
    whole, read, offset = text.encode(), b"", 0
    while offset < len(whole):
        start, part = page(whole[offset : offset + size_bytes + 4], size_bytes=size_bytes)
        assert start == 0
        assert 0 < len(part) <= size_bytes
        part.decode()
        read += part
        offset += len(part)
    assert read == whole


def test_a_page_that_begins_within_a_code_point_begins_at_the_next() -> None:
    whole = "\U0001f600ab".encode()
    assert page(whole[1:], size_bytes=4) == (3, b"ab")


def test_a_page_of_nothing_but_half_a_code_point_is_empty() -> None:
    assert page("\U0001f600".encode()[1:], size_bytes=4) == (3, b"")
