"""TOML files that cannot be read, and what msgspec finds, in our words."""

import enum
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest

from torpor.errors import ConfigError
from torpor.misfits import Words, misfit, misfit_in_toml, read_toml, seen, with_choices


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Line(msgspec.Struct):
    count: Annotated[int, msgspec.Meta(ge=0)]


class Lines(msgspec.Struct):
    lines: list[Line]


class Cat(msgspec.Struct, tag="cat", forbid_unknown_fields=True):
    mood: Mood = Mood.GOOD
    lives: Annotated[int, msgspec.Meta(ge=1, le=9)] = 9


class Dog(msgspec.Struct, tag="dog", forbid_unknown_fields=True):
    size: Literal["", "small", "large"] = ""
    friends: tuple[Cat, ...] = ()
    toys: dict[str, Mood] = {}


class Named(msgspec.Struct):
    name: str
    nick: str = ""


class Home(msgspec.Struct, forbid_unknown_fields=True):
    pets: list[Cat | Dog] = []
    street: str = ""


def refusal(value: Any) -> msgspec.ValidationError:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, Home)
    return refused.value


@pytest.mark.parametrize(
    ("value", "path", "found", "expected"),
    [
        ({"pets": [{"type": "cow"}]}, ".pets[0].type", "cow", "one of 'cat', 'dog'"),
        ({"pets": [{"type": "cat", "mood": "odd"}]}, ".pets[0].mood", "odd", "one of 'bad', 'good'"),
        ({"pets": [{"type": "dog", "size": "huge"}]}, ".pets[0].size", "huge", "one of 'large', 'small'"),
        (
            {"pets": [{"type": "dog", "friends": [{"type": "cat", "mood": "odd"}]}]},
            ".pets[0].friends[0].mood",
            "odd",
            "one of 'bad', 'good'",
        ),
        ({"pets": [{"type": "dog", "toys": {"ball": "odd"}}]}, ".pets[0].toys[...]", "odd", "one of 'bad', 'good'"),
        ({"pets": [{"type": "cat", "lives": 10}]}, ".pets[0].lives", "", "int <= 9"),
        ({"street": 3}, ".street", "int", "str"),
        ({"town": "x"}, ".town", Words("unknown"), "one of pets, street"),
        ({"pets": [{}]}, ".pets[0].type", Words("missing"), "a value, since it has no default"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place_and_what_would_fit(
    value: Any, path: str, found: str, expected: str
) -> None:
    why = misfit(refusal(value), Home)

    assert (why.path, why.found, why.expected) == (path, found, expected)


class Yard(msgspec.Struct):
    names: tuple[str, ...] = ()
    gate: Line | None = None
    owner: Named | None = None
    rows: tuple[Line, ...] = ()
    signs: dict[str, str] = {}


@pytest.mark.parametrize(
    ("value", "path", "expected"),
    [
        ({"names": "ann"}, ".names", 'a list, as in names = ["ann"]'),
        ({"names": 'a"n'}, ".names", 'a list, as in names = ["..."]'),
        ({"names": ["ann", 3]}, ".names[1]", "str"),
        ({"owner": "ann"}, ".owner", 'a table, as in owner = { name = "..." }'),
        ({"gate": 3}, ".gate", "a table"),
        ({"rows": {}}, ".rows", "a list, as in [[yard.rows]]"),
        ({"rows": [{"count": "x"}]}, ".rows[0].count", "int"),
        ({"signs": []}, ".signs", 'a table, as in signs = { NAME = "..." }'),
    ],
)
def test_a_file_is_told_in_words_of_toml_with_an_example(value: Any, path: str, expected: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, Yard)

    why = misfit_in_toml(refused.value, Yard, key="yard", value=value)

    assert (why.path, why.expected) == (path, expected)


def test_the_words_of_msgspec_are_kept_and_the_choices_added() -> None:
    told = with_choices(refusal({"pets": [{"type": "cat", "mood": "odd"}]}), Home)

    assert told == "Invalid enum value 'odd', expected one of 'bad', 'good' - at `$.pets[0].mood`"
    assert with_choices(refusal({"street": 3}), Home) == "Expected `str`, got `int` - at `$.street`"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = " + b"[" * 5_000 + b"]" * 5_000, "x: content is nested too deeply, expected a few levels"),
        (b"a = ", "x: content is not TOML (Invalid value"),
        (b"\xff", "x: content is not TOML ('utf-8' codec"),
        (None, "x: file is unreadable (is a directory), expected a file that this user may read"),
    ],
)
def test_a_file_that_is_no_toml_is_told(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "x.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)

    with pytest.raises(ConfigError) as refused:
        read_toml(path, where="x")

    assert str(refused.value).startswith(problem)


def test_a_file_that_is_not_there_is_for_the_caller_to_judge(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_toml(tmp_path / "x.toml", where="x")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = " + "1" * 5_000, "a number beyond 64 bits"),
        ("a = [[0x" + "f" * 5_000 + "]]", "a number beyond 64 bits"),
        ("a = " + "[" * 10_000, "nested too deeply"),
        ("a." * 65 + "b = 1", "more than 64 parts"),
        ("[" + '"a".' * 65 + "b]", "more than 64 parts"),
        ("x = {" + "a . " * 65 + "b = 1}", "more than 64 parts"),
    ],
)
def test_toml_that_python_chokes_on_is_told_like_any_other_fault(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "a.toml").write_text(text)

    with pytest.raises(ConfigError, match=found):
        read_toml(tmp_path / "a.toml", where="a.toml")


def test_pipe_in_place_of_toml_is_told_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.toml")

    with pytest.raises(ConfigError, match="not an ordinary file"):
        read_toml(tmp_path / "a.toml", where="a.toml")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"^[a-z0-9_-]{1,32}\Z", "Expected 1 to 32 characters among a-z, 0-9, '_', '-' - at `$.name`"),
        (r"^[\w./]{1,8}$", "Expected 1 to 8 characters among letters, digits, '_', '.', '/' - at `$.name`"),
        (r"^a|b$", "Expected `str` matching regex '^a|b$' - at `$.name`"),
    ],
)
def test_a_pattern_is_told_in_words_where_it_has_any(pattern: str, said: str) -> None:
    named = msgspec.defstruct("Named", [("name", Annotated[str, msgspec.Meta(pattern=pattern)])])
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"name": "?"}, named)

    assert with_choices(refused.value, named) == said


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"lines": [{"count": 1}, {"count": "two"}]}, "'two'"),
        ({"lines": [{"count": -1}]}, "-1"),
        ({"lines": {"count": 1}}, "a table"),
        ({"lines": [{"count": "x" * 200}]}, "unusable"),
        ({"lines": [{}]}, "missing"),
        ({}, "missing"),
    ],
)
def test_the_value_that_does_not_fit_is_shown_where_it_is_short(value: dict[str, Any], shown: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert(value, Lines)

    assert repr(seen(misfit(refused.value, Lines), value)) == shown


def test_file_whose_name_is_no_utf8_is_told_in_words_that_can_be_sent(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.toml")
    (tmp_path / name).write_text("nope")

    with pytest.raises(ConfigError) as refused:
        read_toml(tmp_path / name, where=name)

    assert msgspec.json.encode(refused.value.where) == '"\ufffd.toml"'.encode()
