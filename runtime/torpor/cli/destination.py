"""Where a message goes: the conversation that a name means, as every other verb takes it, or a new one of one's own."""

from typing import NamedTuple

from torpor.cli.paths import found_among, is_whole
from torpor.client.items import ReloadItem
from torpor.client.torpor_client import TorporClient


class Destination(NamedTuple):
    """A conversation to send to."""

    name: str
    """As it was given, or a whole path."""
    is_new: bool
    """Whether nothing was said in it yet."""


async def destination(client: TorporClient, name: str) -> Destination:
    """One's own conversation ``name`` where there is one, else the one of anybody's that ends with it, else a new one.

    Raises: click.ClickException: several end with it.  ClientError: the server's answer.
    """
    async with client.watch(name) as watch:
        first = await anext(watch)
    if not isinstance(first, ReloadItem) or first.status.state != "new":
        return Destination(name, is_new=False)
    if is_whole(name):
        return Destination(name, is_new=True)
    path = found_among(name, [row["path"] for row in await client.list(archived=True)])
    return Destination(path or name, is_new=path is None)
