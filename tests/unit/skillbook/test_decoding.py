"""Bytes become text in whatever way an editor wrote them."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.skillbook.decoding import decode

TEXT = "eins\nzwei: Öl 🐙\n"


def codes(data: bytes) -> list[str]:
    return [finding.code for finding in decode(data).findings]


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_line_ends_of_all_kinds_are_one(ending: str) -> None:
    assert decode(TEXT.replace("\n", ending).encode()) == (TEXT, ())


def test_mixed_line_ends_are_one() -> None:
    assert decode(b"a\r\nb\rc\nd\r\r\ne").text == "a\nb\nc\nd\n\ne"


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (TEXT.encode(), []),
        (codecs.BOM_UTF8 + TEXT.encode(), ["byte_order_mark"]),
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), ["utf16"]),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), ["utf16"]),
        (codecs.BOM_UTF32_LE + TEXT.encode("utf-32-le"), ["utf16"]),
        (codecs.BOM_UTF32_BE + TEXT.encode("utf-32-be"), ["utf16"]),
    ],
)
def test_text_is_the_same_under_every_mark(data: bytes, found: list[str]) -> None:
    assert decode(data).text == TEXT
    assert codes(data) == found


def test_one_mark_is_taken_off_and_a_second_is_text() -> None:
    assert decode(codecs.BOM_UTF8 * 2 + b"a").text == "\ufeffa"


def test_bytes_that_are_no_utf8_are_replaced_and_told() -> None:
    assert decode("Öl".encode("latin-1")) == (
        "\ufffdl",
        (("not_utf8", "has bytes that are no UTF-8, expected UTF-8; they were replaced", 0),),
    )


def test_replacement_that_somebody_wrote_is_no_fault() -> None:
    assert codes("\ufffd".encode()) == []


def test_controls_are_taken_out_and_told_with_their_line() -> None:
    text, findings = decode(b"a\nb\0c\x1b\td")
    assert text == "a\nbc\td"
    assert [(finding.code, finding.line) for finding in findings] == [("control_characters", 2)]


def test_half_a_wide_character_is_replaced() -> None:
    assert decode(codecs.BOM_UTF16_LE + b"a\0b").text == "a\ufffd"


@given(st.binary())
def test_all_bytes_become_storable_text(data: bytes) -> None:
    text = decode(data).text
    text.encode()
    assert "\0" not in text
    assert "\r" not in text
