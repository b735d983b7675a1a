"""Skills without files: a catalogue made of texts."""

import zlib
from pathlib import Path

from torpor.skillbook.catalogue import Catalogue
from torpor.skillbook.load import Edition, Place, Shelf, SkillRoot
from torpor.skillbook.options import SkillOptions
from torpor.skillbook.parse import parse

_ROOT = SkillRoot(path=Path("/nowhere"), scope="home")


def catalogue_of(*names: str, edition: int = 1, front: str = "", **bodies: str) -> Catalogue:
    """Skills of these names, and those with bodies of their own. Args: front: more lines of their front matter."""
    texts = {name: f"Edition {edition} of {name}." for name in names} | bodies
    editions = [_edition(name, body, front) for name, body in texts.items()]
    return Catalogue(Shelf(editions={edition.place: edition for edition in editions}), options=SkillOptions())


def _edition(name: str, body: str, front: str) -> Edition:
    text = f"---\nname: {name}\ndescription: About {name}.\n{front}---\n\n{body}\n"
    parsed = parse(text.encode(), directory_name=name, scope=_ROOT.scope)
    assert parsed.skill is not None
    place: Place = (0, (name,))
    return Edition(
        root=_ROOT,
        place=place,
        skill=parsed.skill,
        packed=zlib.compress(parsed.body.encode()),
        resources=(),
        has_more_resources=False,
        warnings=(),
    )
