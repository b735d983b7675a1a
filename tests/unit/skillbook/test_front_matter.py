"""Fences are lines, and what lies between them is read as far as it can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.skillbook.front_matter import FrontMatter, read_front_matter


def read(text: str) -> FrontMatter:
    return read_front_matter(text.encode())


def codes(front: FrontMatter) -> list[tuple[str, int]]:
    return [(finding.code, finding.line) for finding in front.findings]


def test_values_lines_and_body_are_read() -> None:
    front = read("---\nname: a\n\ndescription: b\n---\n\n# Title\n\ntext\n")
    assert front == ({"name": "a", "description": "b"}, {"name": 2, "description": 4}, "# Title\n\ntext", ())


@pytest.mark.parametrize(
    ("text", "description", "body"),
    [
        ('---\ndescription: "a --- b"\n---\nbody', "a --- b", "body"),
        ('---\ndescription: "a\n  ---\n  b"\n---\nbody', "a --- b", "body"),
        ("---\ndescription: |\n  a\n  ---\n  b\n---\nbody", "a\n---\nb", "body"),
        ("---  \t\ndescription: a\n---\t \nbody", "a", "body"),
        ("---\ndescription: a\n---", "a", ""),
        ("---\ndescription: a\n---\n", "a", ""),
        ("---\ndescription: a\n---\n---\nname: second\n---\nbody", "a", "---\nname: second\n---\nbody"),
        ("---\ndescription: a\n  ----\n---\nbody", "a ----", "body"),
    ],
)
def test_fence_is_a_whole_line(text: str, description: str, body: str) -> None:
    front = read(text)
    assert front.values is not None
    assert front.values["description"].rstrip("\n") == description
    assert front.body == body
    assert front.findings == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("no_front_matter", 1)),
        ("# Title\n", ("no_front_matter", 1)),
        ("text\n---\nname: a\n---\n", ("no_front_matter", 1)),
        ("----\nname: a\n----\n", ("no_front_matter", 1)),
        (" ---\nname: a\n---\n", ("no_front_matter", 1)),
        ("---name: a\n---\n", ("no_front_matter", 1)),
        ("---", ("unclosed", 1)),
        ("---\nname: a\n", ("unclosed", 1)),
        ("---\nname: a\n --- \nbody", ("unclosed", 1)),
        ("---\n- a\n- b\n---\n", ("invalid", 2)),
        ("---\nno colon here\n---\n", ("invalid", 2)),
    ],
)
def test_what_is_no_front_matter_is_told(text: str, found: tuple[str, int]) -> None:
    front = read(text)
    assert front.values is None
    assert codes(front) == [found]


def test_text_without_front_matter_is_body() -> None:
    assert read("# Title\n").body == "# Title"


@pytest.mark.parametrize(
    ("text", "values", "found"),
    [
        ("\n \n---\na: b\n---\n", {"a": "b"}, ("blank_lines_first", 1)),
        ("---\na: b\n...\nbody", {"a": "b"}, ("closed_by_dots", 3)),
        ("---\na: b\na: c\n---\n", {"a": "c"}, ("duplicate_key", 3)),
        ("---\na:\n\tb: c\n---\n", {"a": {"b": "c"}}, ("tabs", 3)),
        ("---\na: b\nc: d: e\n---\n", {"a": "b", "c": "d: e"}, ("quoted", 3)),
        ("---\ndescription: [WIP]\n---\n", {"description": "[WIP]"}, ("quoted", 2)),
        ("---\nname: a\nx:\n  y: b: c\n---\n", {"name": "a"}, ("line_scan", 4)),
    ],
)
def test_what_is_forgiven_is_told_with_its_line(text: str, values: dict[str, object], found: tuple[str, int]) -> None:
    front = read(text)
    assert front.values == values
    assert codes(front) == [found]


def test_tabs_and_quotes_are_mended_together() -> None:
    front = read("---\na:\n\tb: c\nd: e: f\n---\n")
    assert front.values == {"a": {"b": "c"}, "d": "e: f"}
    assert codes(front) == [("tabs", 3), ("quoted", 4)]


def test_description_as_a_list_below_its_key_stays_a_list() -> None:
    assert read("---\ndescription:\n  - a\n---\n").values == {"description": ["a"]}


@pytest.mark.parametrize(
    "slip", ["] oops", 'metadata:\n  a: "x', "metadata: {a: *x}\nb:\n  c: d: e", "x:\n  - &y z\n  - *y"]
)
@pytest.mark.parametrize("key", ["allowed-tools: look", "disable-model-invocation: true", "'user-invocable': no"])
def test_what_restricts_a_skill_is_not_lost_with_what_cannot_be_read(slip: str, key: str) -> None:
    front = read(f"---\nname: a\ndescription: b\n{slip}\n{key}\n---\n")
    assert front.values is None
    assert [code for code, _ in codes(front)] == ["restriction_lost"]


def test_aliases_are_taken_line_by_line() -> None:
    front = read("---\nname: a\ndescription: b\nx:\n  - &y z\n  - *y\n---\n")
    assert front.values == {"name": "a", "description": "b"}
    assert codes(front) == [("line_scan", 6)]


@given(st.binary())
def test_nothing_raises(data: bytes) -> None:
    read_front_matter(data)


@given(st.text(alphabet="-.:#'\"[]{}|>&*! \t\nab"))
def test_nothing_between_fences_raises_or_vanishes_silently(inside: str) -> None:
    front = read(f"---\n{inside}\n---\n")
    assert front.values is not None or front.findings
