"""Blobs on a disk: what lies in the directory, and what a failing disk leaves there."""

import errno
import os
from pathlib import Path

import pytest

from tests.support.sample_records import KEY
from torpor.errors import StoreFull, StoreUnavailable
from torpor.store.blobs import LocalBlobs

DATA = b"whole body " * 1000


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def test_equal_data_is_one_file_that_only_its_user_can_read(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")
    handle = await blobs.put(KEY, DATA)
    await blobs.put(KEY, DATA)
    (file,) = files_below(tmp_path)
    assert file.name == handle
    assert file.stat().st_mode & 0o777 == 0o600
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (file.parent, file.parent.parent))


async def test_blobs_outlive_the_process_that_put_them(tmp_path: Path) -> None:
    handle = await LocalBlobs(tmp_path / "blobs").put(KEY, DATA)
    assert await LocalBlobs(tmp_path / "blobs").get(KEY, handle) == DATA


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreUnavailable)]
)
@pytest.mark.parametrize("step", ["write", "fsync"])
async def test_a_failing_disk_leaves_nothing_behind_and_the_next_put_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, expected: type[Exception]
) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(expected):
            await blobs.put(KEY, DATA)
    assert files_below(tmp_path) == []
    handle = await blobs.put(KEY, DATA)
    assert await blobs.get(KEY, handle) == DATA


async def test_a_blob_is_flushed_before_it_gets_its_name_and_the_name_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = LocalBlobs(tmp_path / "blobs", in_threads=False)
    await blobs.put(KEY, b"makes the folders")
    steps: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(file: int) -> None:
        steps.append("flush " + ("folder" if Path(f"/proc/self/fd/{file}").resolve().is_dir() else "file"))
        fsync(file)

    def watched_rename(path: Path, target: Path) -> Path:
        steps.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    await blobs.put(KEY, DATA)
    assert steps == ["flush file", "rename", "flush folder"]


async def test_a_blob_that_cannot_be_read_is_an_error_and_not_an_absence(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "blobs")
    handle = await blobs.put(KEY, DATA)
    (file,) = files_below(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(StoreUnavailable):
        await blobs.get(KEY, handle)


async def test_what_is_being_written_is_no_leftover(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = LocalBlobs(tmp_path / "blobs", in_threads=False)
    fsync, found = os.fsync, list[str]()

    def meddle(file: int) -> None:
        names = [path.name for path in files_below(tmp_path)]
        found.extend(names)
        blobs._remove(KEY, names)
        fsync(file)

    with monkeypatch.context() as patch:
        patch.setattr("torpor.store.blobs._flush_directory", lambda _: None)
        patch.setattr(os, "fsync", meddle)
        handle = await blobs.put(KEY, DATA)
    assert [name.endswith(".tmp") for name in found] == [True]
    assert await blobs.get(KEY, handle) == DATA
