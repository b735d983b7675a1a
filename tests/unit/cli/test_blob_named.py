"""Files as people name them: whole or cut short, in small or capital digits."""

from typing import Any

import click
import pytest

from torpor.cli.blob_named import blob_named

BLOB = "ab" * 32


class Told:
    """A client that knows one message."""

    async def history(self, conversation: str, *, before: int = 0) -> list[dict[str, Any]]:
        return [{"event": 1, "attachments": [{"blob": BLOB}]}]


async def named(told: str) -> str:
    client: Any = Told()
    return await blob_named(client, "ann/c1", told)


@pytest.mark.parametrize("told", [BLOB, BLOB.upper(), "ab", "ABAB"])
async def test_a_file_is_found_in_small_and_in_capital_digits(told: str) -> None:
    assert await named(told) == BLOB


@pytest.mark.parametrize("told", ["scan.png", "ff"])
async def test_who_names_none_is_told_where_names_are_also_without_an_operators_scope(told: str) -> None:
    with pytest.raises(click.ClickException, match=r"`torpor send --json` tells .*`torpor inspect ann/c1`") as refused:
        await named(told)
    assert told in str(refused.value)
