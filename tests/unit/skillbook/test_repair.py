"""Values that should have been in quotes are read as they were meant."""

import pytest

from torpor.skillbook.repair import MENDED_LINES_MAX, quoted, scanned, without_tabs
from torpor.skillbook.yaml_text import read_mapping


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        ("Core rule: record it.", "Core rule: record it."),
        ('[action] - e.g. "list"', '[action] - e.g. "list"'),
        ("`code` first", "`code` first"),
        ("@someone", "@someone"),
        ("*bold* words", "*bold* words"),
        ("&anchor word", "&anchor word"),
        ("!tag word", "!tag word"),
        ("100% # sure: yes", "100% # sure: yes"),
        ("it's: hers", "it's: hers"),
        (r'"C:\users\new"', r"C:\users\new"),
        ('"quoted" and more', '"quoted" and more'),
        ("{{ template }} word", "{{ template }} word"),
        ("%percent", "%percent"),
        ("trailing:", "trailing:"),
    ],
)
def test_value_that_yaml_cannot_read_is_put_in_quotes(value: str, meant: str) -> None:
    text, numbers = quoted(f"a: b\nx: {value}\nc: d: e\n")
    assert read_mapping(text).values["x"] == meant
    assert numbers == (2, 3)


@pytest.mark.parametrize("value", ["plain", '"in quotes: here"', "'it''s'", "[a, b]", "{a: b}", "1.10", "[a, b] # c"])
def test_value_that_yaml_can_read_stays(value: str) -> None:
    assert quoted(f"x: {value}\n") == (f"x: {value}\n", ())


@pytest.mark.parametrize("key", ["name", "description"])
def test_name_and_description_are_never_lists(key: str) -> None:
    text, numbers = quoted(f"{key}: [WIP]\nother: [WIP]")
    assert read_mapping(text).values == {key: "[WIP]", "other": ["WIP"]}
    assert numbers == (1,)


@pytest.mark.parametrize("text", ["x: |\n  a: b: c\n", "x: >-\n  a: b: c\n", "x: a: b\n  goes on\n", "x:\n  a: b\n"])
def test_values_of_several_lines_stay(text: str) -> None:
    assert quoted(text) == (text, ())


def test_tabs_become_spaces_at_the_beginning_of_lines_only() -> None:
    assert without_tabs("a:\n\tb: c\td\n \t e: f\n") == "a:\n  b: c\td\n    e: f\n"


def test_name_and_description_are_found_line_by_line() -> None:
    text = "name: 'it is'\n]broken[\ndescription: one: two\n  three\n\n  four\nmetadata: {\n"
    assert scanned(text) == {"name": "it is", "description": "one: two\nthree\n\nfour"}


def test_block_scalar_is_found_without_its_header() -> None:
    assert scanned("description: >- # folded\n  one\n  two\nother: x\n") == {"description": "one\ntwo"}


def test_value_on_the_next_line_is_found() -> None:
    assert scanned('description:\n  "one"\n') == {"description": "one"}


def test_empty_quotes_are_empty() -> None:
    assert scanned("name: \"\"\ndescription: ''") == {"name": "", "description": ""}


def test_front_matter_of_a_thousand_lines_is_left_to_the_next_step() -> None:
    text = "x: a: b\n" * (MENDED_LINES_MAX + 1)
    assert quoted(text) == (text, ())
