"""Files of the data folder: private, whole, made once."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from torpor.errors import ConfigError
from torpor.local_files import (
    ServerAddress,
    data_folder_problem,
    keep_development_token,
    keep_secret,
    make_data_folder,
    read_secret,
    read_server_address,
    write_server_address,
)

ADDRESS = ServerAddress(url="ws://127.0.0.1:8765", token="t", pid=7, home="/home/agent/home")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A data folder, made while everything new would be open to all."""
    before = os.umask(0)
    try:
        make_data_folder(tmp_path / "home" / ".torpor")
        yield tmp_path / "home" / ".torpor"
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folder_and_every_file_in_it_are_the_owners_alone(folder: Path) -> None:
    keep_secret(folder, fresh=b"s" * 32)
    keep_development_token(folder, make=lambda: "t", is_good=bool)
    write_server_address(folder, ADDRESS)

    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        ".gitignore": 0o600,
        "secret": 0o600,
        "development_token": 0o600,
        "server.json": 0o600,
    }


def test_folder_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)

    make_data_folder(tmp_path)

    assert mode(tmp_path) == 0o700


def test_shared_directory_named_by_mistake_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("")
    tmp_path.chmod(0o755)

    with pytest.raises(ConfigError, match=r"mode is 0755, expected an empty directory, or mode 0700"):
        make_data_folder(tmp_path)

    assert mode(tmp_path) == 0o755


def test_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")

    with pytest.raises(ConfigError, match=r"data: data folder is unusable .file exists., expected one that"):
        make_data_folder(tmp_path / "data")


@pytest.fixture
def read_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder on a file system that nobody can write to, the superuser of a test run included."""

    def refuse(path: Path, *_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    keep_secret(folder, fresh=b"s" * 32)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    return folder


def test_folder_that_cannot_be_written_is_told_with_what_can_be_done(read_only: Path) -> None:
    remedy = "expected one that this user may write in: make it so, or name another one with --data"
    with pytest.raises(ConfigError) as told:
        make_data_folder(read_only)

    assert str(told.value) == f"{read_only}: data folder is unusable (read-only file system), {remedy}"
    assert str(data_folder_problem(read_only)) == str(told.value)
    above = f"it is not there, and {read_only} cannot be written, read-only file system"
    assert str(data_folder_problem(read_only / "a" / "b")) == (
        f"{read_only / 'a' / 'b'}: data folder is unusable ({above}), {remedy}"
    )


def test_file_that_cannot_be_written_after_all_is_told_with_what_can_be_done(read_only: Path) -> None:
    told = r"secret: part of the data folder is not writable \(read-only file system\), expected room .* with --data"
    with pytest.raises(ConfigError, match=told):
        keep_secret(read_only, fresh=b"s" * 32)
    with pytest.raises(ConfigError, match=r"development_token: part of the data folder is not writable"):
        keep_development_token(read_only, make=lambda: "t", is_good=bool)
    with pytest.raises(ConfigError, match=r"server\.json: part of the data folder is not writable"):
        write_server_address(read_only, ADDRESS)


def test_part_of_a_folder_that_cannot_be_written_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "torpor.db").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "torpor.db")

    assert str(data_folder_problem(folder)) == (
        f"{folder / 'torpor.db'}: part of the data folder is not writable (permission denied), expected what this user "
        "may write: make it so, or name another data folder with --data"
    )


def test_folder_is_looked_at_without_writing(tmp_path: Path) -> None:
    assert data_folder_problem(tmp_path / "a" / ".torpor") is None
    assert list(tmp_path.iterdir()) == []


def test_git_never_takes_a_data_folder(folder: Path) -> None:
    assert (folder / ".gitignore").read_text() == "*\n"


def test_secret_is_made_once(folder: Path) -> None:
    assert read_secret(folder) is None

    assert keep_secret(folder, fresh=b"a" * 32) == b"a" * 32
    assert keep_secret(folder, fresh=b"b" * 32) == b"a" * 32
    assert read_secret(folder) == b"a" * 32


def test_secret_that_is_too_short_is_refused(folder: Path) -> None:
    (folder / "secret").write_bytes(b"short")

    with pytest.raises(ConfigError, match=r"secret: length is 5, expected at least 32 bytes; delete the file"):
        keep_secret(folder, fresh=b"a" * 32)


def test_development_token_is_kept_while_it_is_good(folder: Path) -> None:
    assert keep_development_token(folder, make=lambda: "first", is_good=bool) == "first"
    assert keep_development_token(folder, make=lambda: "second", is_good=bool) == "first"
    assert keep_development_token(folder, make=lambda: "third", is_good=lambda token: token == "third") == "third"
    assert keep_development_token(folder, make=lambda: "fourth", is_good=bool) == "third"


def test_address_of_the_last_server_is_read_back(folder: Path) -> None:
    assert read_server_address(folder) is None

    write_server_address(folder, ServerAddress(url="ws://127.0.0.1:1", token="old", pid=1))
    write_server_address(folder, ADDRESS)

    assert read_server_address(folder) == ADDRESS


def test_address_file_that_holds_something_else_is_named_with_the_remedy(folder: Path) -> None:
    (folder / "server.json").write_text("{")

    with pytest.raises(ConfigError, match=r"server\.json: content is .* delete it and start the server again"):
        read_server_address(folder)
