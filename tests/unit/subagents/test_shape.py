"""All faults of a value are told, each with its path and what is expected."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.subagents.shape import faults_of, shown

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=5)]


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    word: Word
    size: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    code: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", description="small letters")]
    inner: Inner
    several: Annotated[tuple[Inner, ...], msgspec.Meta(min_length=1, max_length=2)]
    kind: Literal["a", "b"] = "a"
    notes: Annotated[tuple[Annotated[str, msgspec.Meta(max_length=3)], ...], msgspec.Meta(max_length=2)] = ()


FITTING: dict[str, Any] = {
    "code": "x",
    "inner": {"word": "w"},
    "several": [{"word": "w", "size": 9}],
    "notes": ["", "abc"],
}


def told(value: Any) -> list[str]:
    return [str(fault) for fault in faults_of(value, Outer)]


def test_what_fits_has_no_fault() -> None:
    assert told(FITTING) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"code": "X"}, "code is 'X', expected small letters"),
        ({"inner": None}, "inner is null, expected an object with word, size"),
        ({"inner": {"word": ""}}, "inner.word is '', expected text of 1 to 5 characters"),
        ({"inner": {"word": "w", "size": 10}}, "inner.size is the number 10, expected a whole number from 1 to 9"),
        ({"inner": {"word": "w", "size": True}}, "inner.size is true, expected a whole number from 1 to 9"),
        ({"inner": {"word": "w", "colour": 1}}, "inner.colour is unknown, expected one of word, size"),
        ({"several": []}, "several is a list of 0, expected a list of 1 to 2"),
        ({"several": [{}, {}, {}]}, "several is a list of 3, expected a list of 1 to 2"),
        ({"several": "w"}, "several is 'w', expected a list of 1 to 2"),
        ({"several": [{}]}, "several[0].word is missing, expected text of 1 to 5 characters"),
        ({"kind": "c"}, "kind is 'c', expected one of 'a', 'b'"),
        ({"notes": ["a", "four"]}, "notes[1] is 'four', expected text of at most 3 characters"),
        ({"notes": 1.5}, "notes is the number 1.5, expected a list of at most 2"),
    ],
)
def test_a_fault_is_told_with_its_path(changes: dict[str, Any], said: str) -> None:
    assert told(FITTING | changes) == [said]


def test_all_faults_are_told_at_once() -> None:
    assert told({"code": 1, "kind": "c", "more": 1}) == [
        "code is the number 1, expected small letters",
        "inner is missing, expected an object with word, size",
        "several is missing, expected a list of 1 to 2",
        "kind is 'c', expected one of 'a', 'b'",
        "more is unknown, expected one of code, inner, several, kind, notes",
    ]


def test_a_value_that_is_no_object_is_told_as_the_answer() -> None:
    assert told([1]) == ["the answer is a list of 1, expected an object with code, inner, several, kind, notes"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (False, "false"),
        (10**400, "a huge number"),
        (-(10**400), "a huge number"),
        ({}, "an object"),
        ("x" * 61, f"'{'x' * 60}'… (61 characters)"),
    ],
)
def test_a_value_is_told_in_a_few_characters(value: Any, text: str) -> None:
    assert shown(value) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*FITTING, "kind", "word", "size", "?"]), inner)
    ),
    max_leaves=8,
)


@given(changes=st.dictionaries(st.sampled_from([*FITTING, "kind"]), JSON), dropped=st.sets(st.sampled_from([*FITTING])))
def test_exactly_what_has_no_fault_can_be_converted(changes: dict[str, Any], dropped: set[str]) -> None:
    value = {key: inner for key, inner in (FITTING | changes).items() if key not in dropped}
    try:
        msgspec.convert(value, Outer)
    except msgspec.ValidationError:
        assert told(value)
    else:
        assert told(value) == []
