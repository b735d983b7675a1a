"""What a scan found as editions of skills: read, judged, and kept over from before where they broke.

Above: ``reload``, which asks for it in a thread and puts the result in place. It keeps nothing between two calls but
what is passed in, so a call that was given up does no harm.
"""

import hashlib
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from torpor.skillbook.codes import CODES
from torpor.skillbook.decoding import Finding
from torpor.skillbook.listing import Resource
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import Diagnostic, Skill, parse
from torpor.skillbook.scan import FoundSkill, FoundTrouble, RootUnreadable, scan

_PACKING_LEVEL: Final = 1


class SkillRoot(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of skill folders."""

    path: Path
    scope: str
    """A short name, ``[a-z0-9-]``; of two skills with one name, the other is called ``scope:name``."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A diagnostic with its place."""

    place: str
    """The file or folder, beginning with the name of the folder of skills."""
    diagnostic: Diagnostic
    is_kept: bool = False
    """Whether the skill's version before is still in use."""

    def __str__(self) -> str:
        where = f"{self.place}:{self.diagnostic.line}" if self.diagnostic.line else self.place
        kept = "; the version before stays in use" if self.is_kept else ""
        return f"{where}: {self.diagnostic.message}{kept}"


Place: TypeAlias = tuple[int, tuple[str, ...]]
"""Rank of the root and the parts of the skill's folder below it; the lesser one wins a name."""


class Edition(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one skill."""

    root: SkillRoot
    place: Place
    skill: Skill
    packed: bytes
    """The text, compressed."""
    resources: tuple[Resource, ...]
    has_more_resources: bool
    warnings: tuple[Diagnostic, ...]

    @property
    def body(self) -> str:
        return zlib.decompress(self.packed).decode()


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """All that was loaded, in the order of places."""

    editions: Mapping[Place, Edition] = {}
    problems: tuple[Problem, ...] = ()
    broken: Mapping[Place, str] = {}
    """What tells one broken file from another, of those that cannot be loaded as they are now."""


def load_shelf(roots: Sequence[SkillRoot], *, before: Shelf, options: SkillOptions) -> Shelf:
    """Read every skill below ``roots``; never raises for what is in the files.

    Where a skill was loaded before and is there but cannot be loaded any more, its edition stays.
    """
    loading = _Loading(before, options)
    for rank, root in enumerate(roots):
        loading.add_root(rank, root)
    return loading.shelf()


def place_text(root: SkillRoot, parts: Sequence[str]) -> str:
    """A path for people, also where the system's name is no text."""
    return os.fsencode("/".join((root.path.name, *parts))).decode(errors="replace")


class _Loading:
    """One pass over all roots."""

    def __init__(self, before: Shelf, options: SkillOptions) -> None:
        self._before = before
        self._options = options
        self._editions: dict[Place, Edition] = {}
        self._problems: list[tuple[Place, Problem]] = []
        self._broken: dict[Place, str] = {}

    def shelf(self) -> Shelf:
        """Editions up to the cap on their texts, the others as problems."""
        left_bytes = self._options.bodies_cap_bytes
        editions: dict[Place, Edition] = {}
        for place, edition in sorted(self._editions.items()):
            left_bytes -= len(edition.packed)
            if left_bytes < 0:
                cap = f"{self._options.bodies_cap_bytes:,} bytes (skills.bodies_cap_bytes)"
                message = f"is beyond the {cap} that the texts of all skills may take, not loaded"
                self._tell(edition.root, place, (Finding("over_capacity", message),))
            else:
                editions[place] = edition
        problems = [problem for _, problem in sorted(self._problems, key=lambda pair: pair[0])]
        return Shelf(editions=editions, problems=tuple(problems), broken=self._broken)

    def add_root(self, rank: int, root: SkillRoot) -> None:
        try:
            for found in scan(root.path, options=self._options):
                place = (rank, found.parts)
                match found:
                    case FoundTrouble():
                        kept = self._below(place) if found.finding.code == "unreadable" else {}
                        self._tell(root, place, (found.finding,), is_kept=bool(kept))
                        self._editions |= kept
                    case FoundSkill():
                        self._add(root, place, found)
        except RootUnreadable as exc:
            self._tell(root, (rank, ()), (Finding("root_unreadable", f"cannot be looked into ({exc})"),))
            kept = {place: edition for place, edition in self._before.editions.items() if place[0] == rank}
            self._editions = kept | self._editions

    def _below(self, place: Place) -> dict[Place, Edition]:
        """What was loaded from a folder, and those in it, that cannot be looked into now."""
        rank, parts = place
        return {
            known: edition
            for known, edition in self._before.editions.items()
            if known[0] == rank and known[1][: len(parts)] == parts and known not in self._editions
        }

    def _add(self, root: SkillRoot, place: Place, found: FoundSkill) -> None:
        before = self._before.editions.get(place)
        self._tell(root, place, found.findings, file_name=found.file_name, is_kept=before is not None)
        if found.data is None:
            self._keep(place, before, sign=str(found.findings))
            return
        digest = hashlib.sha256(found.data).hexdigest()
        if before is not None and before.skill.digest == digest:
            edition = _with_resources(before, found)
        else:
            parsed = parse(
                found.data,
                directory_name=os.fsencode(place[1][-1]).decode(errors="replace"),
                scope=root.scope,
                file_cap_bytes=self._options.file_cap_bytes,
            )
            if parsed.skill is None or (before is not None and _is_worse(parsed.diagnostics, before)):
                self._report(
                    root, place, _grave(parsed.diagnostics), file_name=found.file_name, is_kept=before is not None
                )
                self._keep(place, before, sign=digest)
                return
            edition = Edition(
                root=root,
                place=place,
                skill=parsed.skill,
                packed=zlib.compress(parsed.body.encode(errors="replace"), _PACKING_LEVEL),
                resources=found.resources,
                has_more_resources=found.has_more_resources,
                warnings=parsed.diagnostics,
            )
        self._report(root, place, edition.warnings, file_name=found.file_name)
        self._editions[place] = edition

    def _keep(self, place: Place, before: Edition | None, *, sign: str) -> None:
        self._broken[place] = sign
        if before is not None:
            self._editions[place] = before

    def _tell(
        self,
        root: SkillRoot,
        place: Place,
        findings: Sequence[Finding],
        *,
        file_name: str = "",
        is_kept: bool = False,
    ) -> None:
        diagnostics = [
            Diagnostic(code=found.code, message=found.message, severity=CODES[found.code].loading, line=found.line)
            for found in findings
        ]
        self._report(root, place, diagnostics, file_name=file_name, is_kept=is_kept)

    def _report(
        self,
        root: SkillRoot,
        place: Place,
        diagnostics: Sequence[Diagnostic],
        *,
        file_name: str = "",
        is_kept: bool = False,
    ) -> None:
        text = place_text(root, (*place[1], file_name) if file_name else place[1])
        for diagnostic in diagnostics:
            is_kept_here = is_kept and diagnostic.severity == "error"
            self._problems.append((place, Problem(place=text, diagnostic=diagnostic, is_kept=is_kept_here)))


def _is_worse(diagnostics: Sequence[Diagnostic], before: Edition) -> bool:
    """Whether only name and description could be read, where all of the version before could be."""
    codes, known = ({each.code for each in of} for of in (diagnostics, before.warnings))
    return "line_scan" in codes - known


def _grave(diagnostics: Sequence[Diagnostic]) -> list[Diagnostic]:
    """With what keeps a file from being loaded as an error."""
    return [
        msgspec.structs.replace(each, severity="error") if each.code == "line_scan" else each for each in diagnostics
    ]


def _with_resources(edition: Edition, found: FoundSkill) -> Edition:
    if (edition.resources, edition.has_more_resources) == (found.resources, found.has_more_resources):
        return edition
    return msgspec.structs.replace(edition, resources=found.resources, has_more_resources=found.has_more_resources)
