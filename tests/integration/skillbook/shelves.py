"""Folders of skills made by tests, and what they load as."""

from pathlib import Path

from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.load import SkillRoot
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.reload import SkillBook

OPTIONS = SkillOptions(look_s=0.1)


def text(name: str, *, description: str = "Does things.", body: str = "Do it.", extra: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{extra}---\n\n{body}\n"


def put(root: Path, folder: str, content: str | bytes = "", *, file_name: str = "SKILL.md") -> Path:
    """Write a skill, a good one under its folder's name unless told otherwise."""
    path = root / folder / file_name
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content or text(path.parent.name)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def book(*roots: Path, options: SkillOptions = OPTIONS) -> SkillBook:
    """A loaded one; scopes are the names of the roots."""
    skill_book = SkillBook([SkillRoot(path=root, scope=root.name) for root in roots], options=options)
    skill_book.load()
    return skill_book


def load(*roots: Path, options: SkillOptions = OPTIONS) -> Catalogue:
    return book(*roots, options=options).current


def keys(catalogue: Catalogue) -> list[str]:
    return [skill.key for skill in catalogue.skills]


def troubles(catalogue: Catalogue) -> list[tuple[str, str]]:
    """Code and place of each problem."""
    return [(problem.diagnostic.code, problem.place) for problem in catalogue.problems]
