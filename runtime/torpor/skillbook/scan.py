"""The skill folders below one folder, as they lie on disk, in a fixed order whatever the file system's.

Above: ``load``, which makes skills of them. Nothing is followed out: no link, no pipe. A folder with a SKILL.md is a
skill; the files in it and below it are its resources, except those of a skill inside it.
"""

import os
import stat
from collections.abc import Generator, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, NamedTuple

from torpor.ordinary_files import NotOrdinary
from torpor.skillbook.confined import is_of_link, opened_folder, opened_root, read_bytes
from torpor.skillbook.decoding import Finding
from torpor.skillbook.listing import Resource
from torpor.skillbook.options import SkillOptions

SKILL_FILE: Final = "SKILL.md"
SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__"})


class FoundSkill(NamedTuple):
    """A folder with a SKILL.md, or with something in its place."""

    parts: tuple[str, ...]
    """Of the folder, below the root; as the system names them."""
    file_name: str
    data: bytes | None
    """None when it could not be read; one byte more than the cap when it is larger."""
    findings: tuple[Finding, ...]
    resources: tuple[Resource, ...]
    """Sorted, at most as many as are listed."""
    has_more_resources: bool


class FoundTrouble(NamedTuple):
    """Something that is in the way of finding skills."""

    parts: tuple[str, ...]
    finding: Finding


class RootUnreadable(Exception):
    """The folder of skills is there and cannot be looked into."""


def is_skill_file(name: str) -> bool:
    """Whether ``name`` is SKILL.md, in whatever capitals."""
    return name.casefold() == SKILL_FILE.casefold()


def is_skipped(name: str) -> bool:
    """Whether files and folders of this name are never looked at."""
    return name.startswith(".") or name in SKIPPED_FOLDERS


def scan(root: Path, *, options: SkillOptions, only: str = "") -> Iterator[FoundSkill | FoundTrouble]:
    """All below ``root``, or below its folder ``only``; nothing when it is not there.

    Raises: RootUnreadable.
    """
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(opened_root(root))
        except FileNotFoundError:
            return
        except OSError as exc:
            raise RootUnreadable(exc.strerror or type(exc).__name__) from exc
        try:
            yield from _Scan(options, only=only).walk(folder, (), is_inside_skill=False)
        except OSError as exc:  # also of what was there a moment ago, which tells nothing of the rest
            raise RootUnreadable(exc.strerror or type(exc).__name__) from exc


class _Listing:
    """The files of one folder and those below it, at most ``cap``."""

    def __init__(self, cap: int) -> None:
        self.resources: list[Resource] = []
        self.has_more = False
        self._cap = cap

    def add(self, name: str, *, size_bytes: int) -> None:
        # A name that cannot be said cannot be asked for.
        if len(self.resources) < self._cap and name.isprintable():
            self.resources.append(Resource(name, size_bytes))
        else:
            self.has_more = True

    def add_all(self, inner: "_Listing", *, folder: str) -> None:
        for path, size_bytes in inner.resources:
            self.add(f"{folder}/{path}", size_bytes=size_bytes)
        self.has_more = self.has_more or inner.has_more


class _Scan:
    """One pass; remembers how many folders it has looked into."""

    def __init__(self, options: SkillOptions, *, only: str) -> None:
        self._options = options
        self._only = only
        self._folders = 0

    def walk(
        self, folder: int, parts: tuple[str, ...], *, is_inside_skill: bool
    ) -> Generator[FoundSkill | FoundTrouble, None, _Listing]:
        """What is in ``folder`` and below; returns the files that belong to the skill around it."""
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        if self._only and not parts:
            ordered = [entry for entry in ordered if entry.name == self._only]
        skill_files = [entry.name for entry in ordered if is_skill_file(entry.name)]
        is_skill = bool(skill_files and parts)
        if skill_files and not parts:
            finding = Finding("misplaced", f"has a {skill_files[0]} beside the skill folders, expected it in one")
            yield FoundTrouble(parts, finding)
        listing = _Listing(self._options.listing_max)
        for entry in ordered:
            if is_skipped(entry.name) or is_skill_file(entry.name):
                continue
            if entry.is_symlink():
                yield from _link(entry, parts, is_resource=is_skill or is_inside_skill)
            elif entry.is_dir(follow_symlinks=False):
                below = (*parts, entry.name)
                inner = yield from self._enter(folder, below, is_inside_skill=is_skill or is_inside_skill)
                listing.add_all(inner, folder=entry.name)
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # it went since it was listed
                    listing.add(entry.name, size_bytes=entry.stat(follow_symlinks=False).st_size)
        if not is_skill:
            return listing
        yield self._skill(folder, parts, skill_files, listing)
        return _Listing(0)

    def _enter(
        self, within: int, parts: tuple[str, ...], *, is_inside_skill: bool
    ) -> Generator[FoundSkill | FoundTrouble, None, _Listing]:
        options = self._options
        self._folders += 1
        if len(parts) > options.scan_depth_max or self._folders > options.scan_folders_max:
            if len(parts) > options.scan_depth_max:
                message = f"is deeper than {options.scan_depth_max} folders (skills.scan_depth_max), not looked into"
            else:
                message = f"is beyond {options.scan_folders_max:,} folders (skills.scan_folders_max), not looked into"
            yield FoundTrouble(parts, Finding("scan_bounds", message))
            return self._unlisted()
        try:
            with opened_folder(parts[-1], within=within) as folder:
                return (yield from self.walk(folder, parts, is_inside_skill=is_inside_skill))
        except FileNotFoundError:  # likewise
            return _Listing(0)
        except OSError as exc:
            yield FoundTrouble(parts, _unreadable(exc))
            return self._unlisted()

    def _unlisted(self) -> _Listing:
        listing = _Listing(0)
        listing.has_more = True
        return listing

    def _skill(self, folder: int, parts: tuple[str, ...], names: list[str], listing: _Listing) -> FoundSkill:
        findings = []
        name = SKILL_FILE if SKILL_FILE in names else names[0]
        if len(names) > 1:
            findings.append(Finding("case_twin", f"is there as {' and '.join(names)}, {name} is taken"))
        if name != SKILL_FILE:
            findings.append(Finding("file_name", f"is named {name}, expected {SKILL_FILE}"))
        data: bytes | None = None
        try:
            data = read_bytes(name, within=folder, cap_bytes=self._options.file_cap_bytes)
        except OSError as exc:
            findings.append(_unreadable(exc))
        return FoundSkill(parts, name, data, tuple(findings), tuple(listing.resources), listing.has_more)


def _link(entry: os.DirEntry[str], parts: tuple[str, ...], *, is_resource: bool) -> Iterator[FoundTrouble]:
    """A link where a skill could be is trouble; one to a file beside the skills is nothing to us."""
    if is_resource:
        code = "resource_link"
    elif _leads_to_file(entry):
        return
    else:
        code = "link"
    yield FoundTrouble((*parts, entry.name), Finding(code, "is a symbolic link, none are followed: put a copy there"))


def _leads_to_file(entry: os.DirEntry[str]) -> bool:
    try:
        return stat.S_ISREG(entry.stat().st_mode)
    except OSError:
        return False


def _unreadable(exc: OSError) -> Finding:
    if is_of_link(exc):
        return Finding("link", "is a symbolic link, none are followed: put a copy there")
    if isinstance(exc, NotOrdinary):
        return Finding("unreadable", "is not an ordinary file")
    return Finding("unreadable", f"cannot be read ({(exc.strerror or type(exc).__name__).lower()})")
