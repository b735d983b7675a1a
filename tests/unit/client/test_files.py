"""Files by frames, with a server that answers what the test says."""

from typing import Any

import pytest

from torpor.client import files
from torpor.records.frames import ClientFrame, Result

MADE = {"attachment": "ticket", "blob": "b", "media_type": "text/plain", "size_bytes": 3, "tokens": 1, "note": ""}


async def answers(frame: ClientFrame, kind: type[Any]) -> Any:
    return Result(ref="r", rows=({"upload": "u", "received_bytes": 3, **MADE},))


BY = files.Ask(lambda: "r", answers)


async def test_what_came_of_a_file_has_a_name_and_pages_also_where_it_has_none() -> None:
    row = await files.upload(BY, b"abc", name="", upload="")
    assert (row["name"], row["pages"], row["attachment"]) == ("", 0, "ticket")


async def test_a_text_in_place_of_bytes_is_told_as_such() -> None:
    with pytest.raises(TypeError, match="data is str, expected bytes"):
        await files.upload(BY, "abc", name="a.txt", upload="")  # type: ignore[arg-type]  # what is shown
