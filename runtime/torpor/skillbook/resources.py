"""One file of a skill, asked for by a path that a model wrote.

The path is judged as text first and then opened part by part without following a link, so neither can lead out of the
skill's folder. A folder with a SKILL.md of its own inside it is another skill.
"""

import errno
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from torpor.errors import SkillFileUnreadable, ToolRefused
from torpor.ordinary_files import NotOrdinary
from torpor.skillbook.confined import opened_path, read_bytes
from torpor.skillbook.decoding import decode
from torpor.skillbook.listing import Resource
from torpor.skillbook.scan import is_skill_file, is_skipped

NAMED_MAX: Final = 10
"""Files that are named to a model that asked for one that is not there."""

_DRIVE: Final = re.compile(r"[A-Za-z]:")
_ENCODED: Final = re.compile(r"%(?:2e|2f|5c|00|25)", re.IGNORECASE)
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class FileText(msgspec.Struct, frozen=True, kw_only=True):
    """What can be told of a file."""

    path: str
    size_bytes: int
    is_text: bool
    text: str
    """Empty when the file is no text."""


def parts_of(path: str, *, skill: str) -> tuple[str, ...]:
    """The parts of a relative path with ``/``. Raises: ToolRefused: it could lead elsewhere."""
    reason = ""
    if "\\" in path:
        reason = "has a backslash, expected /"
    elif path.startswith("/") or _DRIVE.match(path):
        reason = "is absolute, expected one relative to the skill's folder"
    elif not path.isprintable():
        reason = "has characters that cannot be printed"
    elif _ENCODED.search(path):
        reason = "has encoded characters, expected them as they are"
    parts = tuple(part for part in path.split("/") if part not in {"", "."})
    if ".." in parts:
        reason = "leads upwards, expected one inside the skill's folder"
    if reason:
        raise ToolRefused(f"path {path!r} of skill {skill!r} {reason}")
    return parts


def read_resource(
    root: Path, folder: Sequence[str], path: str, *, skill: str, known: Sequence[Resource], cap_bytes: int
) -> FileText:
    """Read the file ``path`` of the skill in ``folder`` below ``root``.

    Args: skill: its key, for the texts of errors.  known: what a model may be told of instead.
    Raises: ToolRefused: the path leads elsewhere.  SkillFileUnreadable: no such file, too large, no ordinary file.
    """
    parts = parts_of(path, skill=skill)
    if not parts or is_skill_file(parts[-1]):
        raise ToolRefused(f"path {path!r} of skill {skill!r} is the skill itself, load_skill gives its text")
    if any(map(is_skipped, parts)):
        raise SkillFileUnreadable(skill, path=path, why=_not_there(known))
    try:
        _refuse_other_skills(root, folder, parts, path=path, skill=skill)
        with opened_path(root, (*folder, *parts[:-1])) as descriptor:
            data = read_bytes(parts[-1], within=descriptor, cap_bytes=cap_bytes)
    except OSError as exc:
        raise SkillFileUnreadable(skill, path=path, why=_why(exc, known)) from exc
    if len(data) > cap_bytes:
        raise SkillFileUnreadable(skill, path=path, why=f"larger than the {cap_bytes:,} bytes that can be read")
    return _told("/".join(parts), data)


def _refuse_other_skills(root: Path, folder: Sequence[str], parts: Sequence[str], *, path: str, skill: str) -> None:
    for depth in range(1, len(parts)):
        with opened_path(root, (*folder, *parts[:depth])) as descriptor:
            if any(map(is_skill_file, os.listdir(descriptor))):  # noqa: PTH208  # a descriptor has no path
                inner = "/".join(parts[:depth])
                raise ToolRefused(f"path {path!r} of skill {skill!r} is in {inner}, which is another skill")


def _why(exc: OSError, known: Sequence[Resource]) -> str:
    match exc:
        case FileNotFoundError():
            return _not_there(known)
        case NotOrdinary():
            return "not an ordinary file"
        case OSError(errno=errno.ELOOP | errno.EMLINK | errno.ENOTDIR):
            return "a symbolic link is in the way, and none are followed"
        case _:
            return (exc.strerror or type(exc).__name__).lower()


def _not_there(known: Sequence[Resource]) -> str:
    names = ", ".join(resource.path for resource in known[:NAMED_MAX])
    more = ", ..." if len(known) > NAMED_MAX else ""
    return f"no such file, expected one of {names}{more}" if names else "no such file, the skill has none to read"


def _told(path: str, data: bytes) -> FileText:
    if data.startswith(_WIDE_MARKS):
        return FileText(path=path, size_bytes=len(data), is_text=True, text=decode(data).text)
    try:
        data.decode()
    except UnicodeDecodeError:
        is_text = False
    else:
        is_text = b"\0" not in data
    return FileText(path=path, size_bytes=len(data), is_text=is_text, text=decode(data).text if is_text else "")
