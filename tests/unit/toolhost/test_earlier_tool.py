"""The tool says what to read and within which bounds; whose turns they are is not the model's to say."""

from typing import Any

import msgspec
import pytest

from tests.support.tools import a_context, a_registry
from torpor.conversation.earlier import READ_EARLIER
from torpor.records.terms import Outcome
from torpor.toolhost.contract import EarlierBounds, ToolResult

BOUNDS = EarlierBounds(size_bytes=2_048, records_max=20_000, deadline_s=10.0)


class Heard:
    """Implements ``toolhost.contract.EarlierAccess``: says what was asked."""

    async def read(self, **asked: Any) -> str:
        assert asked.pop("bounds") == BOUNDS
        return f"read {asked}"

    async def search(self, query: str, **asked: Any) -> str:
        assert asked.pop("bounds") == BOUNDS
        return f"search {query!r} {asked}"


async def call(earlier: Heard | None, **arguments: Any) -> ToolResult:
    box = a_registry(result_cap_bytes=2_048).toolbox()
    context = msgspec.structs.replace(a_context(), earlier=earlier)
    return await box.call(READ_EARLIER, msgspec.Raw(msgspec.json.encode(arguments)), context)


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({"first_turn": 3}, "read {'first_turn': 3, 'last_turn': 3, 'offset': 0}"),
        ({"first_turn": 3, "last_turn": 5, "offset": 9}, "read {'first_turn': 3, 'last_turn': 5, 'offset': 9}"),
        ({"query": "a b"}, "search 'a b' {'first_turn': 0, 'last_turn': 0, 'limit': 5}"),
        ({"query": "a", "last_turn": 7, "limit": 20}, "search 'a' {'first_turn': 0, 'last_turn': 7, 'limit': 20}"),
    ],
)
async def test_a_range_is_read_and_words_are_searched(arguments: dict[str, Any], asked: str) -> None:
    result = await call(Heard(), **arguments)
    assert (result.outcome, result.text) == (Outcome.SUCCEEDED, asked)


@pytest.mark.parametrize("arguments", [{}, {"query": "  "}, {"last_turn": 4}])
async def test_without_a_turn_or_words_it_says_what_it_needs(arguments: dict[str, Any]) -> None:
    result = await call(Heard(), **arguments)
    assert (result.outcome, result.text) == (
        Outcome.FAILED,
        "nothing was asked for, expected first_turn or a query",
    )


@pytest.mark.parametrize(
    "arguments",
    [{"first_turn": -1}, {"query": "x", "limit": 21}, {"first_turn": "x"}, {"first_turn": 1, "owner": "eve"}],
)
async def test_arguments_out_of_range_and_those_it_does_not_have_are_refused(arguments: dict[str, Any]) -> None:
    assert (await call(Heard(), **arguments)).outcome is Outcome.FAILED


async def test_where_nothing_is_kept_it_says_so() -> None:
    result = await call(None, first_turn=1)
    assert (result.outcome, result.text) == (Outcome.DENIED, "no earlier turns are kept here")
