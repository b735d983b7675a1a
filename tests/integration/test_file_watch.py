"""Edits below watched paths are told, whatever happens to the paths, on both backends and by both means."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio
import pytest

from torpor.file_watch import watch


class Told:
    """Counts the calls and lets a test wait for the next one."""

    def __init__(self) -> None:
        self.times = 0
        self._next = anyio.Event()

    async def __call__(self) -> None:
        self.times += 1
        self._next.set()
        self._next = anyio.Event()

    async def more_than(self, times: int) -> None:
        with anyio.fail_after(20):
            while self.times <= times:
                await self._next.wait()


@asynccontextmanager
async def watched(*paths: Path, is_polling: bool) -> AsyncIterator[Told]:
    """A watch that has begun: its first call, which has no cause, is behind."""
    told = Told()
    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(watch, paths, changed=told, is_polling=is_polling, look_s=0.1))
        await told.more_than(0)
        yield told
        tasks.cancel_scope.cancel()


@pytest.fixture(params=[False, True], ids=["notified", "polled"])
def is_polling(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def write(path: Path, text: str = "b") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def replace_folder(folder: Path) -> None:
    fresh = folder.with_name("fresh")
    write(fresh / "a.md", "c")
    folder.rename(folder.with_name("old"))
    fresh.rename(folder)


EDITS: dict[str, Callable[[Path], object]] = {
    "a file is edited": lambda folder: write(folder / "a.md", "longer"),
    "a file is added": lambda folder: write(folder / "b.md"),
    "a file is added in a new folder": lambda folder: write(folder / "deep" / "deeper" / "b.md"),
    "a file is removed": lambda folder: (folder / "a.md").unlink(),
    "a file is renamed": lambda folder: (folder / "a.md").rename(folder / "z.md"),
    "the folder is removed": shutil.rmtree,
    "the folder is replaced": replace_folder,
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
async def test_edit_is_told(tmp_path: Path, edit: Callable[[Path], object], *, is_polling: bool) -> None:
    write(tmp_path / "home" / "a.md")
    async with watched(tmp_path / "home", is_polling=is_polling) as told:
        before = told.times
        edit(tmp_path / "home")
        await told.more_than(before)


REPLACEMENTS = 20
"""Of which some get the inode of the file before, on file systems that hand them out again."""


async def test_edits_of_a_file_are_told_after_it_was_removed_and_made_again(
    tmp_path: Path, *, is_polling: bool
) -> None:
    file = tmp_path / "flags.toml"
    write(file)
    seen: dict[str, anyio.Event] = {}

    async def read() -> None:
        with suppress(FileNotFoundError):
            seen.setdefault(file.read_text(), anyio.Event()).set()

    async def is_told(text: str) -> None:
        with anyio.fail_after(20):
            await seen.setdefault(text, anyio.Event()).wait()

    async with anyio.create_task_group() as tasks:
        await tasks.start(partial(watch, [file], changed=read, is_polling=is_polling, look_s=0.1))
        for number in range(REPLACEMENTS):
            file.unlink()
            write(file, f"made {number}")
            await is_told(f"made {number}")
            with file.open("a") as end:
                end.write(" and edited")
            await is_told(f"made {number} and edited")
        tasks.cancel_scope.cancel()


async def test_edits_below_a_folder_are_told_after_it_was_removed_and_made_again(
    tmp_path: Path, *, is_polling: bool
) -> None:
    folder = tmp_path / "skills"
    write(folder / "a.md")
    async with watched(folder, is_polling=is_polling) as told:
        for number in range(REPLACEMENTS):
            shutil.rmtree(folder)
            write(folder / "a.md", f"made {number}")
            before = told.times
            write(folder / "b.md", f"added {number}")
            await told.more_than(before)


async def test_folder_that_comes_later_is_told_and_watched(tmp_path: Path, *, is_polling: bool) -> None:
    async with watched(tmp_path / "later", is_polling=is_polling) as told:
        before = told.times
        write(tmp_path / "later" / "a.md")
        await told.more_than(before)
        again = told.times
        write(tmp_path / "later" / "b.md")
        await told.more_than(again)


async def test_one_path_that_is_missing_does_not_hide_another(tmp_path: Path, *, is_polling: bool) -> None:
    write(tmp_path / "there" / "a.md")
    async with watched(tmp_path / "missing", tmp_path / "there", is_polling=is_polling) as told:
        before = told.times
        write(tmp_path / "there" / "b.md")
        await told.more_than(before)


async def test_what_the_caller_raises_ends_the_watch(tmp_path: Path) -> None:
    async def fail() -> None:
        raise RuntimeError("no reader")

    with anyio.fail_after(20), pytest.raises(ExceptionGroup) as caught:
        await watch([tmp_path], changed=fail, look_s=0.1)

    assert caught.group_contains(RuntimeError, match="no reader")


async def test_watch_falls_back_to_polling_where_the_system_cannot_notify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limited(*_: object) -> object:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr("watchfiles.main.RustNotify", limited)
    async with watched(tmp_path, is_polling=False) as told:
        before = told.times
        write(tmp_path / "a.md")
        await told.more_than(before)
