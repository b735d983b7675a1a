"""Edits below watched paths are told, whatever happens to the paths, on both backends and by both means."""

import os
import shutil
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import pytest
import structlog
from watchfiles._rust_notify import RustNotify

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


async def test_what_the_reader_raises_is_told_and_the_next_edit_is_told_all_the_same(
    tmp_path: Path, *, is_polling: bool
) -> None:
    told = Told()

    async def fail() -> None:
        await told()
        raise RuntimeError("no reader")

    write(tmp_path / "a.md")
    async with anyio.create_task_group() as tasks:
        with structlog.testing.capture_logs() as logged:
            await tasks.start(partial(watch, [tmp_path], changed=fail, is_polling=is_polling, look_s=0.1))
            await told.more_than(0)
            before = told.times
            write(tmp_path / "a.md", "longer")
            await told.more_than(before)
        tasks.cancel_scope.cancel()

    assert {(entry["event"], entry["log_level"]) for entry in logged} == {("file_watch.reader_failed", "error")}


@pytest.mark.parametrize("is_there_before", [True, False])
async def test_names_that_are_no_utf8_do_not_end_the_watch(tmp_path: Path, *, is_there_before: bool) -> None:
    odd = tmp_path / os.fsdecode(b"\xff") / "a.md"
    write(tmp_path / "a.md")
    if is_there_before:
        write(odd)
    async with watched(tmp_path, is_polling=False) as told:
        for text in ("longer", "and longer"):
            before = told.times
            write(odd, text)
            await told.more_than(before)
        before = told.times
        write(tmp_path / "a.md", "longer")
        await told.more_than(before)


async def test_edit_that_the_system_told_and_the_library_dropped_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf:
        """Waits as the library does and hears nothing."""

        def __init__(self, *_: object) -> None:
            self._never = threading.Event()

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self._never.set()

        def watch(self, debounce_ms: int, step_ms: int, timeout_ms: int, stop: Any) -> str:
            self._never.wait(timeout_ms / 1_000)
            return "stop" if stop.is_set() else "timeout"

    monkeypatch.setattr("watchfiles.main.RustNotify", Deaf)
    write(tmp_path / "deep" / "a.md")
    async with watched(tmp_path, is_polling=False) as told:
        before = told.times
        write(tmp_path / "deep" / "a.md", "longer")
        await told.more_than(before)


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


async def test_the_system_is_asked_again_after_it_could_not_notify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Semaphore(0)
    refusals = ["OS file watch limit reached"] * 2

    def limited(*args: Any) -> Any:
        if refusals:
            raise OSError(refusals.pop())
        asked.release()
        return RustNotify(*args)

    monkeypatch.setattr("watchfiles.main.RustNotify", limited)
    told = Told()
    with structlog.testing.capture_logs() as logged:
        async with anyio.create_task_group() as tasks:
            await tasks.start(partial(watch, [tmp_path], changed=told, look_s=0.05, again_s=0.1))
            with anyio.fail_after(20):
                await anyio.to_thread.run_sync(asked.acquire, abandon_on_cancel=True)
            before = told.times
            write(tmp_path / "a.md")
            await told.more_than(before)
            tasks.cancel_scope.cancel()
    assert [entry["event"] for entry in logged] == ["file_watch.polling"] * 2
