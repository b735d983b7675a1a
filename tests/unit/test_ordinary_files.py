"""Whatever stands in the place of a file is read at once or refused at once."""

import os
import struct
from pathlib import Path

import pytest

from torpor.ordinary_files import LinkToNothing, NotOrdinary, TooLarge, read_ordinary, readable_by_others, shown


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


_NOBODY = 0xFFFF_FFFF
_OWNER, _USER, _GROUP, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20


def with_list(path: Path, *, user: int, group: int) -> Path:
    """A file that a list gives to ``user``, and to its group as far as ``group`` says, in the form of the kernel."""
    entries = (
        (_OWNER, 4, _NOBODY),
        (_USER, 4, user),
        (_GROUP, group, _NOBODY),
        (_MASK, 4, _NOBODY),
        (_OTHER, 0, _NOBODY),
    )
    path.write_text("secret")
    try:
        packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
        os.setxattr(path, "system.posix_acl_access", packed)
    except (OSError, AttributeError):
        pytest.skip("no access control lists here")
    return path


def test_file_that_a_list_gives_to_this_user_alone_is_not_readable_by_others_whatever_its_mode(tmp_path: Path) -> None:
    path = with_list(tmp_path / "credential", user=os.geteuid(), group=0)

    assert path.stat().st_mode & 0o777 == 0o440
    assert readable_by_others(path) == ""


def test_file_that_a_list_gives_to_others_is_readable_by_them(tmp_path: Path) -> None:
    for name, user, group in (("user", os.geteuid() + 1, 0), ("group", os.geteuid(), 4)):
        assert "has mode 0440" in readable_by_others(with_list(tmp_path / name, user=user, group=group))


def test_name_that_is_no_utf8_can_be_shown() -> None:
    assert shown(os.fsdecode(b"a\xff.md")) == "a\ufffd.md"
