"""docs/client.md tells every request of the client, every item of a watch, and every error."""

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


def test_every_request_is_told() -> None:
    requests = {name for name, _ in inspect.getmembers(TorporClient, inspect.isfunction) if not name.startswith("_")}

    assert names(table("client.md", "The Python client")) == requests - {"statistics"}


def test_every_item_of_a_watch_is_told() -> None:
    assert set(table("client.md", "What a watch yields")) == {item.__name__ for item in typing.get_args(AnyItem)}


def test_every_error_of_the_client_is_told() -> None:
    own = {
        error.__name__
        for _, error in inspect.getmembers(failures, inspect.isclass)
        if issubclass(error, ClientError) and error.__module__ == failures.__name__
    }

    assert names(table("client.md", "Deadlines and errors")) == own | {Unauthenticated.__name__}
