"""Standard input, line by line."""

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from torpor.cli.lines import lines_of


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends; the writing one may be closed by the test."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)


async def all_lines(descriptor: int) -> list[str]:
    with anyio.fail_after(5):
        return [line async for line in lines_of(descriptor)]


async def test_lines_come_without_their_ends(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], "one\ntwo\r\n\nGröße\nlast".encode())
    os.close(pipe[1])

    assert await all_lines(pipe[0]) == ["one", "two", "", "Größe", "last"]


async def test_line_is_given_as_soon_as_it_is_whole(pipe: tuple[int, int]) -> None:
    lines = lines_of(pipe[0])
    os.write(pipe[1], "o\nGr\xc3".encode("latin-1"))

    with anyio.fail_after(5):
        assert await anext(lines) == "o"
        os.write(pipe[1], "\xb6\xc3\x9fe\n".encode("latin-1"))
        assert await anext(lines) == "Größe"

    os.close(pipe[1])
    await lines.aclose()


async def test_bytes_that_are_no_text_are_shown_as_such(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"\xff\n")
    os.close(pipe[1])

    assert await all_lines(pipe[0]) == ["�"]


async def test_file_and_nothing_at_all_can_be_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("one\ntwo\n")
    script, nothing = os.open(tmp_path / "script", os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)

    try:
        assert await all_lines(script) == ["one", "two"]
        assert await all_lines(nothing) == []
    finally:
        os.close(script)
        os.close(nothing)


async def test_waiting_for_a_line_can_be_cancelled(pipe: tuple[int, int]) -> None:
    with anyio.move_on_after(0.01) as scope:
        await anext(lines_of(pipe[0]))

    assert scope.cancelled_caught
    os.close(pipe[1])
