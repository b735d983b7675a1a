"""docs/client.md tells every request of the client, every item of a watch, and every error."""

import ast
import inspect
import re
import typing

from tests.unit.docs.test_tables import DOCS, table
from torpor.client import failures
from torpor.client.items import AnyItem
from torpor.client.torpor_client import TorporClient
from torpor.errors import ClientError, Unauthenticated

PAGE = (DOCS / "client.md").read_text()


def names(cells: typing.Iterable[str]) -> set[str]:
    return {name for cell in cells for name in re.findall(r"\w+(?=\(|`|$)", re.sub(r"\([^)]*\)", "(", cell))}


def arguments(call: typing.Callable[..., object]) -> list[tuple[str, object]]:
    """By their names, with what they are when they are left out."""
    return [(each.name, each.default) for each in inspect.signature(call).parameters.values() if each.name != "self"]


def told_arguments(text: str) -> list[tuple[str, object]]:
    pairs = [each.strip().partition("=") for each in text.split(",") if each.strip() not in {"", "*"}]
    return [
        (name, ast.literal_eval(default) if is_said else inspect.Parameter.empty) for name, is_said, default in pairs
    ]


def test_every_request_is_told_with_its_arguments() -> None:
    requests = dict(inspect.getmembers(TorporClient, inspect.isfunction))
    told = {
        name: told_arguments(text)
        for heading in ("The Python client", "For operators")
        for cell in table("client.md", heading)
        for name, text in re.findall(r"(\w+)\(([^)]*)\)", cell)
    }

    expected = {name: arguments(call) for name, call in requests.items() if not name.startswith("_")}
    assert told == {name: each for name, each in expected.items() if name != "statistics"}


def test_what_is_not_awaited_is_told() -> None:
    not_awaited = {
        name
        for name, call in inspect.getmembers(TorporClient, inspect.isfunction)
        if not name.startswith("_") and not inspect.iscoroutinefunction(call)
    }

    assert not_awaited == {"watch", "renew", "statistics"}
    calls = table("client.md", "The Python client")
    assert names(cell for cell, rest in calls.items() if rest[0].startswith("not awaited")) == {"watch", "renew"}


def test_what_a_client_is_made_of_is_told() -> None:
    made_of = {name for name, _ in arguments(TorporClient) if name != "url"}

    assert {cell.rstrip("=") for cell in table("client.md", "What a client is made of")} >= made_of - {
        "ids",
        "jitter",
        "clock",
    }


def test_every_item_of_a_watch_is_told() -> None:
    assert set(table("client.md", "What a watch yields")) == {item.__name__ for item in typing.get_args(AnyItem)}


def test_every_error_of_the_client_is_told() -> None:
    own = {
        error.__name__
        for _, error in inspect.getmembers(failures, inspect.isclass)
        if issubclass(error, ClientError) and error.__module__ == failures.__name__
    }

    assert names(table("client.md", "Deadlines and errors")) == own | {Unauthenticated.__name__}
