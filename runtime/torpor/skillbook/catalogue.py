"""The skills of a home at one moment, by the names they answer to. Immutable; a reload puts another in its place.

Above: the turn, which lists them, and the engine's tools, which hand out their texts and files. Texts are kept here,
compressed, so that a file that is being edited cannot show through; other files are read when they are asked for.
"""

import hashlib
from collections.abc import Container, Mapping
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from torpor.errors import SkillFileUnreadable, ToolFailed
from torpor.skillbook.codes import CODES
from torpor.skillbook.index import Finder
from torpor.skillbook.listing import listing_text
from torpor.skillbook.load import Edition, Place, Problem, Shelf, place_text
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import Diagnostic, Skill
from torpor.skillbook.resources import FileText, read_resource
from torpor.skillbook.slug import slug

SCOPE_MARK: Final = ":"


class LoadedText(msgspec.Struct, frozen=True, kw_only=True):
    """A skill as a model reads it."""

    text: str
    """Below it, the files that can be read, where there are any."""
    digest: str
    """Of the SKILL.md that the text is from: its version."""


class Shadowed(msgspec.Struct, frozen=True, kw_only=True):
    """A skill whose name another one answers to."""

    address: str
    """``scope:name``, or ``scope:folder`` where that is taken too."""
    skill: Skill


class Catalogue:
    """Skills with their texts."""

    def __init__(self, shelf: Shelf, *, options: SkillOptions) -> None:
        self._options = options
        self._by_address, collisions = _addresses(shelf.editions)
        self._by_version = {_version(edition.skill): edition for edition in reversed(self._by_address.values())}
        self._address_of = {_version(found.skill): name for name, found in reversed(self._by_address.items())}
        plain = {key: edition for key, edition in self._by_address.items() if SCOPE_MARK not in key}
        self.skills: Final[tuple[Skill, ...]] = tuple(edition.skill for _, edition in sorted(plain.items()))
        """Sorted by key; each key once."""
        self.shadowed: Final[tuple[Shadowed, ...]] = tuple(
            Shadowed(address=address, skill=edition.skill)
            for address, edition in sorted(self._by_address.items())
            if SCOPE_MARK in address
        )
        self._finder = Finder(self.skills)
        self.problems: Final[tuple[Problem, ...]] = shelf.problems + collisions
        """In the order of places."""
        self.digest: Final[str] = _digest(self._by_address)
        """Equal for equal skills, texts and lists of files."""

    def get(self, key_or_name: str) -> Skill | None:
        """The skill that answers to a key, to a name however it is written, or to ``scope:name``."""
        edition = self._by_address.get(key_or_name) or self._by_address.get(slug(key_or_name))
        if edition is None and SCOPE_MARK in key_or_name:
            scope, _, name = key_or_name.partition(SCOPE_MARK)
            edition = self._by_address.get(f"{slug(scope)}{SCOPE_MARK}{slug(name)}")
            if edition is None:
                winner = self._by_address.get(slug(name))
                edition = winner if winner is not None and winner.root.scope == slug(scope) else None
        return edition.skill if edition is not None else None

    def search(self, query: str, *, limit: int, among: Container[str]) -> tuple[Skill, ...]:
        """The skills with keys ``among`` these that have words of ``query``, best first."""
        return self._finder.search(query, limit=limit, among=among)

    def address(self, skill: Skill) -> str:
        """What ``skill`` answers to; its key where it is not here."""
        return self._address_of.get(_version(skill), skill.key)

    def addresses(self) -> Mapping[str, Skill]:
        """Every skill by the name it answers to, shadowed ones included."""
        return {address: edition.skill for address, edition in self._by_address.items()}

    def versions(self) -> Mapping[str, str]:
        """What tells each skill, its text and its list of files from others, by the name it answers to."""
        return {address: _edition_digest(edition) for address, edition in self._by_address.items()}

    def place(self, skill: Skill) -> str:
        """The skill's folder, for people. Raises: ToolFailed: it is gone."""
        edition = self._edition(skill)
        return place_text(edition.root, edition.place[1])

    def body(self, skill: Skill) -> LoadedText:
        """The text of ``skill``: of the version given, or of the one that has taken its place.

        Raises: ToolFailed: it is gone.
        """
        edition = self._edition(skill)
        listing = listing_text(edition.skill.key, edition.resources, has_more=edition.has_more_resources)
        return LoadedText(text=edition.body + listing, digest=edition.skill.digest)

    async def read_file(self, skill: Skill, path: str) -> FileText:
        """A file of ``skill`` other than its SKILL.md, as it is on disk now; metadata only where it is no text.

        Raises: ToolRefused: the path leads elsewhere.  SkillFileUnreadable: no such file, too large, not in time.
            ToolFailed: the skill is gone.
        """
        edition = self._edition(skill)
        with anyio.move_on_after(self._options.scan_deadline_s):
            return await anyio.to_thread.run_sync(
                lambda: read_resource(
                    edition.root.path,
                    edition.place[1],
                    path,
                    skill=edition.skill.key,
                    known=edition.resources,
                    cap_bytes=self._options.resource_cap_bytes,
                ),
                abandon_on_cancel=True,
            )
        why = f"not read within {self._options.scan_deadline_s:g} s"
        raise SkillFileUnreadable(edition.skill.key, path=path, why=why)

    def _edition(self, skill: Skill) -> Edition:
        edition = self._by_version.get(_version(skill))
        if edition is None:
            same = (found for found in self._by_address.values() if found.skill.key == skill.key)
            edition = next((found for found in same if found.root.scope == skill.scope), None)
        if edition is None:
            raise ToolFailed(f"skill {skill.key!r} is no longer there, go on without it")
        return edition

    def __repr__(self) -> str:
        return f"<Catalogue skills={len(self.skills)} shadowed={len(self.shadowed)} {self.digest[:12]}>"


def _version(skill: Skill) -> tuple[str, str, str]:
    return skill.scope, skill.key, skill.digest


def _addresses(editions: Mapping[Place, Edition]) -> tuple[dict[str, Edition], tuple[Problem, ...]]:
    """Who answers to what: a key goes to the first place that has it, the others are told."""
    taken: dict[str, Edition] = {}
    collisions = []
    for place in sorted(editions):
        edition = editions[place]
        key = edition.skill.key
        winner = taken.setdefault(key, edition)
        if winner is edition:
            continue
        address = f"{edition.root.scope}{SCOPE_MARK}{key}"
        # The scope alone does not tell it from one of the same scope.
        if address in taken or edition.root.scope == winner.root.scope:
            address = f"{edition.root.scope}{SCOPE_MARK}{slug('-'.join(place[1]))}"
        unique, number = address, 2
        while unique in taken:
            unique, number = f"{address}-{number}", number + 1
        taken[unique] = edition
        collisions.append(_collision(edition, winner, address=unique))
    return taken, tuple(collisions)


def _collision(edition: Edition, winner: Edition, *, address: str) -> Problem:
    other = place_text(winner.root, winner.place[1])
    message = f"answers to {edition.skill.key!r} like {other}, which has it; this one is {address!r}"
    return Problem(
        place=place_text(edition.root, edition.place[1]),
        diagnostic=Diagnostic(code="collision", message=message, severity=CODES["collision"].loading),
    )


def _edition_digest(edition: Edition) -> str:
    facts = (edition.skill.digest, edition.resources, edition.has_more_resources)
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _digest(by_address: Mapping[str, Edition]) -> str:
    whole = sorted((address, _edition_digest(edition)) for address, edition in by_address.items())
    return hashlib.sha256(repr(whole).encode()).hexdigest()
