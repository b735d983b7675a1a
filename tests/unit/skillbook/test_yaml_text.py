"""YAML is read as text in lists and maps, and nothing else."""

import pytest
import yaml

from torpor.skillbook import yaml_text
from torpor.skillbook.yaml_text import DEPTH_MAX, NODES_MAX, YamlFault, read_mapping


@pytest.fixture(autouse=True, params=["c", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of the library, the one that is not there everywhere first."""
    if request.param == "python":
        monkeypatch.setattr(yaml_text, "_LOADER", yaml.BaseLoader)


@pytest.mark.parametrize(
    "value", ["yes", "null", "~", "1e3", "1.10", "2024-01-01", "0x1F", "true", "", "12:30:00", "..", "con", "<<"]
)
def test_scalars_stay_what_was_written(value: str) -> None:
    assert read_mapping(f"x: {value}").values == {"x": value}


def test_lists_and_maps_are_kept() -> None:
    text = "a: [1, {b: c}]\nd:\n  - e\n  - f: g\n"
    assert read_mapping(text).values == {"a": ["1", {"b": "c"}], "d": ["e", {"f": "g"}]}


def test_block_scalars_are_folded_as_yaml_says() -> None:
    assert read_mapping("a: >\n  b\n  c\nd: |-\n  e\n  f\n").values == {"a": "b c\n", "d": "e\nf"}


def test_keys_are_told_with_their_lines() -> None:
    assert read_mapping("a: b\n\n# no\nc:\n  d: e\nf: g").lines == {"a": 1, "c": 4, "f": 6}


def test_last_of_equal_keys_counts_and_each_is_told() -> None:
    mapping = read_mapping("a: 1\na: 2\nb:\n  c: 1\n  c: 2\n")
    assert mapping.values == {"a": "2", "b": {"c": "2"}}
    assert mapping.repeated == (("a", 2), ("c", 5))


@pytest.mark.parametrize("text", ["", "\n\n", "# a comment\n"])
def test_nothing_is_an_empty_map(text: str) -> None:
    assert read_mapping(text).values == {}


def test_key_that_is_a_list_is_a_text() -> None:
    assert read_mapping("? [a]\n: b\n").values == {"['a']": "b"}


def test_tags_make_no_objects() -> None:
    text = 'a: !!python/object/apply:os.system ["true"]\nb: !!python/name:os.system x\nc: !!binary aGk=\n'
    assert read_mapping(text).values == {"a": ["true"], "b": "x", "c": "aGk="}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: b: c", 1),
        ("a: b\nc: [d] - e\n", 2),
        ('a: "b" c', 1),
        ("a: @b", 1),
        ("a: `b`", 1),
        ("- a\n- b\n", 1),
        ("just words", 1),
        ("a: b\n--- \nc: d\n", 2),
        ("a: &x b\nc: *x\n", 2),
        ("a: *unknown", 1),
        ("a:\n\t- b\n", 2),
        ("a: \x01", 1),
        ("a: \ufffe", 1),
    ],
)
def test_what_is_no_map_of_text_is_a_fault_with_its_line(text: str, line: int) -> None:
    with pytest.raises(YamlFault) as caught:
        read_mapping(text)
    assert abs(caught.value.line - line) <= 1  # the two parsers differ in where they notice
    assert str(caught.value) == caught.value.reason != ""


def test_escape_beyond_unicode_is_a_fault() -> None:
    with pytest.raises(YamlFault):
        read_mapping(r'a: "\UFFFFFFFF"')


def test_bomb_of_aliases_is_refused_at_the_first() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    with pytest.raises(YamlFault, match=r"the alias \*a is not supported"):
        read_mapping(bomb)


def test_depth_is_bounded() -> None:
    with pytest.raises(YamlFault, match=f"deeper than {DEPTH_MAX} levels"):
        read_mapping("a: " + "[" * 500 + "]" * 500)


def test_number_of_parts_is_bounded() -> None:
    with pytest.raises(YamlFault, match=f"more than {NODES_MAX:,} parts"):
        read_mapping("a: [" + "x, " * NODES_MAX + "x]")


def test_one_large_text_is_no_matter() -> None:
    assert len(read_mapping(f"a: {'x' * 900_000}").values["a"]) == 900_000
