"""Edits below watched paths are told, whatever happens to the paths, on both backends and by both means."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
