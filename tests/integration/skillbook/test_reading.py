"""A model reads the files of a skill, and nothing else."""

import os
import threading
from pathlib import Path

import anyio
import msgspec
import pytest

from tests.integration.skillbook.shelves import OPTIONS, load, put, text
from torpor.errors import SkillFileUnreadable, ToolError, ToolFailed, ToolRefused
from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.resources import FileText


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """One skill with a few files, beside what it must not reach."""
    root = tmp_path / "skills"
    put(root, "a")
    put(root, "a/references", "text\n", file_name="b.md")
    put(root, "a/references/deep", "deeper", file_name="c.md")
    put(root, "a/inner")
    put(root, "a/inner/references", "of inner", file_name="d.md")
    put(root, "a", "hidden", file_name=".env")
    put(root, "other", text("other", body="of another"))
    (tmp_path / "secret.md").write_text("secret")
    return root


async def read(catalogue: Catalogue, path: str) -> FileText:
    skill = catalogue.get("a")
    assert skill is not None
    with anyio.fail_after(20):
        return await catalogue.read_file(skill, path)


async def refusal(catalogue: Catalogue, path: str) -> ToolError:
    with pytest.raises(ToolError) as caught:
        await read(catalogue, path)
    return caught.value


@pytest.mark.parametrize("path", ["references/b.md", "./references/b.md", "references//b.md", "references/./b.md"])
async def test_file_is_read(root: Path, path: str) -> None:
    assert await read(load(root), path) == FileText(path="references/b.md", size_bytes=5, is_text=True, text="text\n")


async def test_file_is_read_as_it_is_now(root: Path) -> None:
    catalogue = load(root)
    put(root, "a/references", "new", file_name="later.md")
    assert (await read(catalogue, "references/later.md")).text == "new"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../other/SKILL.md", "leads upwards"),
        ("references/../../../secret.md", "leads upwards"),
        ("references/..", "leads upwards"),
        ("/etc/hosts", "is absolute"),
        ("//etc/hosts", "is absolute"),
        ("C:/secret.md", "is absolute"),
        ("..\\secret.md", "has a backslash"),
        ("references\\b.md", "has a backslash"),
        ("references/b.md\0.png", "cannot be printed"),
        ("references/b.md\n", "cannot be printed"),
        ("%2e%2e/secret.md", "has encoded characters"),
        ("..%2Fsecret.md", "has encoded characters"),
        ("%252e%252e/secret.md", "has encoded characters"),
        ("SKILL.md", "is the skill itself"),
        ("./skill.md", "is the skill itself"),
        ("", "is the skill itself"),
        (".", "is the skill itself"),
        ("inner/SKILL.md", "is the skill itself"),
        ("inner/references/d.md", "is in inner, which is another skill"),
    ],
)
async def test_path_that_leads_elsewhere_is_refused(root: Path, path: str, reason: str) -> None:
    refused = await refusal(load(root), path)
    assert isinstance(refused, ToolRefused)
    assert reason in str(refused)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("references/x.md", "no such file, expected one of references/b.md, references/deep/c.md"),
        ("x" * 300, "file name too long"),
        (".env", "no such file, expected one of"),
        (".git/config", "no such file, expected one of"),
        ("references", "not an ordinary file"),
        ("references/b.md/x", "a symbolic link is in the way"),
    ],
)
async def test_what_is_no_file_is_told(root: Path, path: str, why: str) -> None:
    refused = await refusal(load(root), path)
    assert isinstance(refused, SkillFileUnreadable)
    assert str(refused).startswith(f"file {path!r} of skill 'a' cannot be read: {why}")


async def test_many_files_are_named_by_the_first_few(root: Path) -> None:
    for number in range(20):
        put(root, "a/references", "x", file_name=f"n{number:02}.md")
    refused = await refusal(load(root), "missing.md")
    assert str(refused).count(".md,") == 10
    assert str(refused).endswith(", ...")


async def test_skill_without_files_says_so(root: Path) -> None:
    catalogue = load(root)
    other = catalogue.get("other")
    assert other is not None
    with pytest.raises(SkillFileUnreadable, match="the skill has none to read"):
        await catalogue.read_file(other, "x.md")


@pytest.mark.parametrize("target", ["/etc/hosts", "../../secret.md", "../other/SKILL.md", "b.md"])
async def test_link_is_not_followed(root: Path, target: str) -> None:
    (root / "a" / "references" / "link.md").symlink_to(target)
    (root / "a" / "linked").symlink_to(Path("references"))
    (root / "a" / "out").symlink_to(root.parent)
    catalogue = load(root)
    for path in ("references/link.md", "linked/b.md", "out/secret.md"):
        refused = await refusal(catalogue, path)
        assert "a symbolic link is in the way" in str(refused)


async def test_link_put_in_between_the_look_and_the_opening_is_met(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = load(root)
    real = os.open

    def swapping(opened: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if opened == "b.md":
            (root / "a" / "references" / "b.md").unlink()
            (root / "a" / "references" / "b.md").symlink_to(root.parent / "secret.md")
        return real(opened, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping)
    assert "a symbolic link is in the way" in str(await refusal(catalogue, "references/b.md"))


async def test_skill_folder_that_became_a_link_gives_nothing(root: Path) -> None:
    catalogue = load(root)
    (root / "a").rename(root.parent / "moved")
    (root / "a").symlink_to(root.parent / "moved")
    assert "a symbolic link is in the way" in str(await refusal(catalogue, "references/b.md"))


async def test_pipe_is_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "a" / "pipe.md")
    assert "not an ordinary file" in str(await refusal(load(root), "pipe.md"))


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\0\0", b"\xff\x00\xfe", "Öl".encode("latin-1"), b"a\0b"])
async def test_file_that_is_no_text_is_told_by_its_size_alone(root: Path, data: bytes) -> None:
    put(root, "a/assets", data, file_name="logo.png")
    found = await read(load(root), "assets/logo.png")
    assert found == FileText(path="assets/logo.png", size_bytes=len(data), is_text=False, text="")


@pytest.mark.parametrize(
    "data", ["Öl\r\n".encode(), "\ufeffÖl\n".encode(), "Öl\r".encode("utf-16"), "\ufeffÖl\n".encode("utf-16-be")]
)
async def test_text_is_read_in_every_form(root: Path, data: bytes) -> None:
    put(root, "a", data, file_name="b.txt")
    assert (await read(load(root), "b.txt")).text == "Öl\n"


async def test_file_above_its_cap_is_told(root: Path) -> None:
    catalogue = load(root, options=msgspec.structs.replace(OPTIONS, resource_cap_bytes=1_000))
    put(root, "a", "x" * 1_000, file_name="fits.md")
    put(root, "a", "x" * 1_001, file_name="large.md")
    assert (await read(catalogue, "fits.md")).size_bytes == 1_000
    assert "larger than the 1,000 bytes" in str(await refusal(catalogue, "large.md"))


async def test_reading_that_hangs_ends_at_its_deadline(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = load(root, options=msgspec.structs.replace(OPTIONS, scan_deadline_s=0.05))
    released = threading.Event()
    real = os.open

    def hanging(opened: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if opened == "b.md":
            released.wait(20)
        return real(opened, flags, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", hanging)
    refused = await refusal(catalogue, "references/b.md")
    released.set()
    assert "not read within 0.05 s" in str(refused)


async def test_skill_that_is_gone_is_told(root: Path, tmp_path: Path) -> None:
    (skill, *_) = load(root).skills
    with pytest.raises(ToolFailed, match="no longer there"):
        await load(tmp_path / "missing").read_file(skill, "x.md")
