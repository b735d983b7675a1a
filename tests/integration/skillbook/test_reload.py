"""Edits reach the catalogue whole, and what breaks stays as it was."""

import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog

from tests.integration.skillbook.shelves import OPTIONS, book, keys, put, text, troubles
from torpor.skillbook.load import SkillRoot
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.reload import Changes, SkillBook


@pytest.fixture
def root(tmp_path: Path) -> Path:
    put(tmp_path / "skills", "a", text("a", body="first"))
    put(tmp_path / "skills", "b")
    return tmp_path / "skills"


def body(skill_book: SkillBook, key: str) -> str:
    skill = skill_book.current.get(key)
    assert skill is not None
    return skill_book.current.body(skill).text


async def test_nothing_new_is_no_change(root: Path) -> None:
    skill_book = book(root)
    before = skill_book.current
    assert await skill_book.refresh() == Changes()
    assert not Changes()
    assert skill_book.current.digest == before.digest


async def test_edits_are_in_place_after_a_refresh(root: Path) -> None:
    skill_book = book(root)
    before = skill_book.current
    put(root, "a", text("a", body="second"))
    put(root, "c")
    shutil.rmtree(root / "b")

    with structlog.testing.capture_logs() as logs:
        changes = await skill_book.refresh()

    assert changes == Changes(added=("c",), changed=("a",), removed=("b",))
    assert body(skill_book, "a") == "second"
    assert keys(skill_book.current) == ["a", "c"]
    assert keys(before) == ["a", "b"]
    assert [(log["event"], log["skill"]) for log in logs] == [
        ("skill.added", "c"),
        ("skill.reloaded", "a"),
        ("skill.removed", "b"),
    ]


async def test_edit_of_the_same_length_in_the_same_instant_is_seen(root: Path) -> None:
    skill_book = book(root)
    status = (root / "a" / "SKILL.md").stat()
    put(root, "a", text("a", body="fIrst"))
    os.utime(root / "a" / "SKILL.md", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert await skill_book.refresh() == Changes(changed=("a",))


async def test_new_file_of_a_skill_is_a_change(root: Path) -> None:
    skill_book = book(root)
    put(root, "a", "x", file_name="notes.md")
    assert await skill_book.refresh() == Changes(changed=("a",))
    assert "notes.md" in body(skill_book, "a")


BREAKS = {
    "description_missing": "---\nname: a\n---\n",
    "unclosed": "---\nname: a\ndescription: half writ",
    "no_front_matter": "",
}


@pytest.mark.parametrize(("code", "content"), BREAKS.items())
async def test_broken_edit_keeps_the_last_good_version_until_it_is_mended(root: Path, code: str, content: str) -> None:
    skill_book = book(root)
    good = skill_book.current.get("a")
    (root / "a" / "SKILL.md").write_text(content)

    with structlog.testing.capture_logs() as logs:
        changes = await skill_book.refresh()

    assert changes == Changes(broken=("a",))
    assert [(log["event"], log["place"], log["file"], log["code"]) for log in logs] == [
        ("skill.broken", "a", "skills/a/SKILL.md", code)
    ]
    assert logs[0]["why"]
    assert skill_book.current.get("a") == good
    assert body(skill_book, "a") == "first"
    (problem,) = skill_book.current.problems
    assert (problem.diagnostic.code, problem.is_kept) == (code, True)
    assert str(problem).endswith("; the version before stays in use")
    assert await skill_book.refresh() == Changes()
    assert len(skill_book.current.problems) == 1

    put(root, "a", text("a", body="mended"))
    assert await skill_book.refresh() == Changes(changed=("a",))
    assert body(skill_book, "a") == "mended"
    assert not skill_book.current.problems


async def test_second_break_is_told_anew(root: Path) -> None:
    skill_book = book(root)
    put(root, "a", "one")
    await skill_book.refresh()
    put(root, "a", "other")
    assert await skill_book.refresh() == Changes(broken=("a",))


async def test_file_that_became_a_link_keeps_what_it_was(root: Path, tmp_path: Path) -> None:
    skill_book = book(root)
    (tmp_path / "secret.md").write_text(text("a", body="secret"))
    (root / "a" / "SKILL.md").unlink()
    (root / "a" / "SKILL.md").symlink_to(tmp_path / "secret.md")
    assert await skill_book.refresh() == Changes(broken=("a",))
    assert body(skill_book, "a") == "first"
    assert troubles(skill_book.current) == [("link", "skills/a/SKILL.md")]


async def test_skill_that_was_broken_from_the_start_is_not_there(root: Path) -> None:
    put(root, "a", "broken")
    skill_book = book(root)
    assert keys(skill_book.current) == ["b"]
    assert await skill_book.refresh() == Changes()


async def test_forgiven_edit_is_taken_with_its_warning(root: Path) -> None:
    skill_book = book(root)
    put(root, "a", text("a", description="Core rule: record it."))
    assert await skill_book.refresh() == Changes(changed=("a",))
    assert troubles(skill_book.current) == [("quoted", "skills/a/SKILL.md")]
    assert not skill_book.current.problems[0].is_kept


def replace_by_a_file(folder: Path) -> None:
    folder.rename(folder.with_name("away"))
    folder.write_text("")


async def test_folder_that_cannot_be_looked_into_keeps_its_skills(root: Path) -> None:
    skill_book = book(root)
    replace_by_a_file(root)
    assert await skill_book.refresh() == Changes()
    assert keys(skill_book.current) == ["a", "b"]
    assert troubles(skill_book.current) == [("root_unreadable", "skills")]


async def test_folder_that_is_gone_takes_its_skills_along(root: Path) -> None:
    skill_book = book(root)
    shutil.rmtree(root)
    assert await skill_book.refresh() == Changes(removed=("a", "b"))
    put(root, "a")
    assert await skill_book.refresh() == Changes(added=("a",))


async def test_name_moves_when_its_first_folder_goes(root: Path) -> None:
    put(root, "b", text("a", body="of b"))
    skill_book = book(root)
    assert sorted(skill_book.current.addresses()) == ["a", "skills:b"]
    shutil.rmtree(root / "a")
    assert await skill_book.refresh() == Changes(changed=("a",), removed=("skills:b",))
    assert body(skill_book, "a") == "of b"


async def test_refresh_beyond_its_deadline_leaves_everything_as_it_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill_book = book(root, options=msgspec.structs.replace(OPTIONS, scan_deadline_s=0.05))
    before = skill_book.current
    put(root, "a", text("a", body="second"))
    released = threading.Event()
    real = os.open

    def hanging(opened: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        released.wait(20)
        return real(opened, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(os, "open", hanging)
        changes = await skill_book.refresh()
        released.set()

    assert changes == Changes()
    assert skill_book.current is before
    assert [log["event"] for log in logs] == ["skill.scan_timed_out"]


async def test_start_tells_what_is_wrong(root: Path) -> None:
    put(root, "a", "broken")
    with structlog.testing.capture_logs() as logs:
        skill_book = book(root)
    assert [(log["event"], log["code"]) for log in logs] == [("skill.problem", "no_front_matter")]
    assert repr(skill_book).startswith("<SkillBook <Catalogue skills=1")


class TellingBook(SkillBook):
    """Lets a test wait for what a watch brings."""

    def __init__(self, root: Path, *, options: SkillOptions) -> None:
        super().__init__([SkillRoot(path=root, scope="home")], options=options)
        self._refreshed = anyio.Event()

    async def refresh(self) -> Changes:
        changes = await super().refresh()
        self._refreshed.set()
        self._refreshed = anyio.Event()
        return changes

    async def until_other_than(self, digest: str) -> None:
        with anyio.fail_after(20):
            while self.current.digest == digest:
                await self._refreshed.wait()


@asynccontextmanager
async def watched(root: Path, *, options: SkillOptions) -> AsyncIterator[TellingBook]:
    skill_book = TellingBook(root, options=options)
    skill_book.load()
    async with anyio.create_task_group() as tasks:
        await tasks.start(skill_book.watching)
        yield skill_book
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("watch", ["auto", "poll"])
async def test_edits_reach_a_watched_book(root: Path, watch: str) -> None:
    options = msgspec.convert({"watch": watch, "look_s": 0.1}, SkillOptions)
    async with watched(root, options=options) as skill_book:
        before = skill_book.current.digest
        put(root, "a", text("a", body="second"))
        await skill_book.until_other_than(before)
        assert body(skill_book, "a") == "second"


async def test_book_that_is_not_watched_returns_at_once(root: Path) -> None:
    skill_book = book(root, options=msgspec.structs.replace(OPTIONS, watch="off"))
    with anyio.fail_after(5):
        await skill_book.watching()


@pytest.mark.parametrize("slip", ["] oops\n", 'metadata:\n  a: "x\n', "x:\n  - &y z\n  - *y\n"])
async def test_slip_in_the_front_matter_lifts_no_restriction(root: Path, slip: str) -> None:
    put(root, "a", text("a", extra="allowed-tools: look\n"))
    put(root, "b", text("b", extra="allowed-tools: look\n"))
    skill_book = book(root)

    put(root, "a", text("a", extra=f"{slip}allowed-tools: look\n"))
    put(root, "b", text("b", extra=slip))
    changes = await skill_book.refresh()

    assert changes == Changes(broken=("a", "b"))
    assert [skill.allowed_tools for skill in skill_book.current.skills] == [("look",), ("look",)]
    assert [problem.is_kept for problem in skill_book.current.problems] == [True, True]


async def test_skill_of_which_little_can_be_read_is_taken_at_the_start_and_kept_current(root: Path) -> None:
    put(root, "a", text("a", extra="] oops\n"))
    skill_book = book(root)
    put(root, "a", text("a", extra="] oops\n", body="second"))
    await skill_book.refresh()

    assert body(skill_book, "a") == "second"


async def test_skill_whose_restriction_cannot_be_read_is_not_there_from_the_start(root: Path) -> None:
    put(root, "a", text("a", extra="] oops\nallowed-tools: look\n"))

    assert keys(book(root).current) == ["b"]


async def test_file_that_goes_while_skills_are_read_takes_none_of_them_along(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill_book = book(root)
    put(root, "a", "broken")
    await skill_book.refresh()
    real = os.scandir

    def with_a_ghost(folder: int) -> AbstractContextManager[Iterator[Any]]:
        @contextmanager
        def listed() -> Iterator[Iterator[Any]]:
            with real(folder) as entries:
                yield iter([*entries, Ghost("ghost.tmp", is_folder=False), Ghost("ghost", is_folder=True)])

        return listed()

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", with_a_ghost)
        changes = await skill_book.refresh()

    assert changes == Changes()
    assert keys(skill_book.current) == ["a", "b"]


class Ghost:
    """An entry of a folder that is gone once somebody looks closer."""

    def __init__(self, name: str, *, is_folder: bool) -> None:
        self.name = name
        self._is_folder = is_folder

    def is_symlink(self) -> bool:
        return False

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        del follow_symlinks
        return self._is_folder

    def is_file(self, *, follow_symlinks: bool) -> bool:
        return not self.is_dir(follow_symlinks=follow_symlinks)

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        del follow_symlinks
        raise FileNotFoundError(self.name)


async def test_folder_of_a_skill_that_cannot_be_looked_into_keeps_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill_book = book(root)
    real = os.open

    def refusing(opened: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if opened == "a":
            raise PermissionError(13, "Permission denied", opened)
        return real(opened, flags, mode, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refusing)
        changes = await skill_book.refresh()

    assert changes == Changes()
    assert keys(skill_book.current) == ["a", "b"]
    assert [problem.is_kept for problem in skill_book.current.problems] == [True]
