"""Skills held to the specification, for their authors, with what each costs. Beside ``load``, which forgives."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torpor.conversation.budget import tokens_of_bytes
from torpor.skillbook.codes import CODES
from torpor.skillbook.decoding import Finding
from torpor.skillbook.index import line_tokens
from torpor.skillbook.listing import listing_text
from torpor.skillbook.load import SkillRoot, place_text
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import Diagnostic, parse, validate
from torpor.skillbook.scan import FoundSkill, FoundTrouble, RootUnreadable, scan


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One skill, or one thing that is in the way of a skill."""

    place: str
    """The file or folder, beginning with the name of the folder of skills."""
    key: str = ""
    """Empty where there is no skill that could be loaded."""
    index_tokens: int = 0
    """Estimated, of its whole line in the index."""
    loaded_tokens: int = 0
    """Estimated, of its text with the list of its files."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def errors(self) -> int:
        return sum(diagnostic.severity == "error" for diagnostic in self.diagnostics)


def check(root: Path, *, options: SkillOptions, only: str = "") -> tuple[Checked, ...]:
    """All skills below ``root``, or those in its folder ``only``, in the order of their places.

    Two that answer to one name are told with both places.
    """
    skill_root = SkillRoot(path=root, scope="")
    found = []
    try:
        for each in scan(root, options=options, only=only):
            match each:
                case FoundSkill():
                    found.append((each.parts, _checked(skill_root, each, options=options)))
                case FoundTrouble():
                    place = place_text(skill_root, each.parts)
                    found.append((each.parts, Checked(place=place, diagnostics=(_diagnostic(each.finding),))))
    except RootUnreadable as exc:
        finding = Finding("root_unreadable", f"cannot be looked into ({exc})")
        found.append(((), Checked(place=place_text(skill_root, ()), diagnostics=(_diagnostic(finding),))))
    return tuple(_with_collisions([each for _, each in sorted(found, key=lambda pair: pair[0])]))


def _checked(root: SkillRoot, found: FoundSkill, *, options: SkillOptions) -> Checked:
    place = place_text(root, (*found.parts, found.file_name))
    diagnostics = [_diagnostic(finding) for finding in found.findings]
    if found.data is None:
        return Checked(place=place, diagnostics=tuple(diagnostics))
    name = os.fsencode(found.parts[-1]).decode(errors="replace")
    diagnostics += validate(found.data, directory_name=name, file_cap_bytes=options.file_cap_bytes)
    parsed = parse(found.data, directory_name=name, file_cap_bytes=options.file_cap_bytes)
    if parsed.skill is None:
        return Checked(place=place, diagnostics=tuple(diagnostics))
    listing = listing_text(parsed.skill.key, found.resources, has_more=found.has_more_resources)
    return Checked(
        place=place,
        key=parsed.skill.key,
        index_tokens=line_tokens(parsed.skill) if parsed.skill.model_invocable else 0,
        loaded_tokens=tokens_of_bytes(len((parsed.body + listing).encode())),
        diagnostics=tuple(diagnostics),
    )


def _with_collisions(skills: list[Checked]) -> Iterator[Checked]:
    first: dict[str, str] = {}
    for skill in skills:
        other = first.setdefault(skill.key, skill.place)
        if skill.key and other != skill.place:
            finding = Finding("collision", f"answers to {skill.key!r} like {other}, which has it")
            yield msgspec.structs.replace(skill, diagnostics=(*skill.diagnostics, _diagnostic(finding)))
        else:
            yield skill


def _diagnostic(finding: Finding) -> Diagnostic:
    severity = CODES[finding.code].checking
    return Diagnostic(code=finding.code, message=finding.message, severity=severity, line=finding.line)
