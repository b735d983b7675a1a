"""Whatever stands in the place of a file is read at once or refused at once."""

import os
from pathlib import Path

import pytest

from torpor.ordinary_files import LinkToNothing, NotOrdinary, TooLarge, read_ordinary, shown


def test_file_is_read_whole_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"four")
    (tmp_path / "link").symlink_to("file")

    assert read_ordinary(tmp_path / "file", cap_bytes=4) == b"four"
    assert read_ordinary(tmp_path / "link", cap_bytes=4) == b"four"


def test_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(NotOrdinary):
        read_ordinary(tmp_path / "pipe", cap_bytes=4)


@pytest.mark.parametrize("name", ["/dev/zero", "/"])
def test_devices_and_folders_are_refused(name: str) -> None:
    with pytest.raises(NotOrdinary):
        read_ordinary(Path(name), cap_bytes=4)


def test_file_beyond_the_cap_is_refused_with_the_cap(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"fives")

    with pytest.raises(TooLarge, match="larger than 4 bytes"):
        read_ordinary(tmp_path / "file", cap_bytes=4)


def test_link_that_leads_nowhere_is_no_missing_file(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")

    with pytest.raises(LinkToNothing):
        read_ordinary(tmp_path / "link", cap_bytes=4)
    with pytest.raises(FileNotFoundError):
        read_ordinary(tmp_path / "nowhere", cap_bytes=4)


def test_name_that_is_no_utf8_can_be_shown() -> None:
    assert shown(os.fsdecode(b"a\xff.md")) == "a\ufffd.md"
