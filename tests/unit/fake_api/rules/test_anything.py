"""A host answers whatever it is sent: no request makes the judge itself fail."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fake_api.parts import HELLO, RESULT, USE, assistant, image, png, request, tool, user
from torpor_fake_api.memory import Memory
from torpor_fake_api.profiles import PROFILES
from torpor_fake_api.rules.judge import violations
from torpor_fake_api.signing import Signer

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["type", "text", "content", "name", "id", "role", "input"]), inner)
    ),
    max_leaves=8,
)
VALID = request(
    user(HELLO, image(png())),
    assistant({"type": "thinking", "thinking": "x", "signature": "eA=="}, HELLO, USE),
    user(RESULT | {"content": [HELLO]}, HELLO),
    tools=[tool(), tool(name="other", strict=True)],
    tool_choice={"type": "auto"},
    thinking={"type": "adaptive"},
    output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
    stop_sequences=["."],
    cache_control={"type": "ephemeral"},
)


def places(value: Any, *path: Any) -> list[tuple[Any, ...]]:
    """Every place in a request."""
    match value:
        case dict():
            inner = list(value.items())
        case list():
            inner = list(enumerate(value))
        case _:
            inner = []
    return [path, *(place for key, item in inner for place in places(item, *path, key))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """``value`` with something else at one place."""
    if not path:
        return new
    copied = value.copy()
    copied[path[0]] = replaced(value[path[0]], path[1:], new)
    return copied


@pytest.mark.parametrize("profile", PROFILES)
@given(place=st.sampled_from(places(VALID)), new=ANYTHING)
def test_the_judge_stands_anything_at_any_place(profile: str, place: tuple[Any, ...], new: Any) -> None:
    body = replaced(VALID, place, new)

    violations(body, profile=PROFILES[profile], witness=Memory(Signer()))
