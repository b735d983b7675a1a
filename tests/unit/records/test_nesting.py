"""How deeply JSON is nested, told of what was read and of what was not."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torpor.records.nesting import DEPTH_MAX, RECORD_DEPTH_MAX, is_deep, is_deep_json


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_is_counted_in_arrays_and_objects(opening: str, closing: str) -> None:
    def nested(depth: int) -> str:
        return opening * depth + "1" + closing * depth

    assert not is_deep(msgspec.json.decode(nested(DEPTH_MAX)))
    assert is_deep(msgspec.json.decode(nested(DEPTH_MAX + 1)))
    assert not is_deep_json(nested(RECORD_DEPTH_MAX).encode())
    assert is_deep_json(nested(RECORD_DEPTH_MAX + 1).encode())


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"}" * 100_000])
def test_what_no_reader_could_go_to_the_end_of_is_deep(text: bytes) -> None:
    assert is_deep_json(text)


@pytest.mark.parametrize(
    "text", [b"[]" * 500, b"}{" * 40, b'"[[[[', b'"' + b'\\"[' * 500, b"[" + b'"[",' * 500 + b"1]"]
)
def test_what_stands_side_by_side_or_in_a_text_is_not(text: bytes) -> None:
    assert not is_deep_json(text)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


NAMES = st.text(st.sampled_from('[]{}"\\,:a'), max_size=4)
JSON = st.recursive(
    st.none() | NAMES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@given(JSON, st.integers(0, 6))
def test_depth_is_the_same_read_or_not(value: Any, depth_max: int) -> None:
    assert is_deep_json(msgspec.json.encode(value), depth_max=depth_max) is (depth_of(value) > depth_max)
