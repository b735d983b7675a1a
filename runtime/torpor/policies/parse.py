"""One policy file into its id, its version and its excerpts; pure.

A file begins with YAML front matter between two lines of ``---`` that names ``id`` and ``version``, and may name a
``title``. Each heading outside of a code fence begins an excerpt, which is its text up to the next heading of any
level; what stands before the first one is an excerpt of its own. A heading with nothing below it is only part of the
headings of those under it.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

import msgspec
import yaml

from torpor.conversation.graphemes import cut

_FRONT: Final = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_BLANKS: Final = " \t"
_NAME_CHARS_MAX: Final = 256
"""Of a title or heading, which every excerpt below it repeats."""
_BETWEEN: Final = " > "


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a policy, as a model reads it."""

    id: str
    """Of its policy."""
    version: str
    heading: str
    """From the outermost to its own, as in ``Cancellations > Late``; the title for what stands before any."""
    text: str
    """Without its heading and without blank ends."""


class PolicyFile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    id: str
    version: str
    title: str
    excerpts: tuple[Excerpt, ...]
    """In the order of the file; at least one."""


class PolicyProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file is no policy."""

    file: str
    """Below the folder of policies."""
    line: int
    """From 1; 0 for the file as a whole."""
    message: str


class PolicyUnreadable(Exception):
    """The text is no policy; line 0 stands for the file as a whole."""

    def __init__(self, message: str, *, line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class _Front(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}\Z")]
    version: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    title: Annotated[str, msgspec.Meta(max_length=_NAME_CHARS_MAX)] = ""


def parse_policy(text: str) -> PolicyFile:
    """The policy that ``text`` is.

    Raises: PolicyUnreadable: the front matter is missing or unusable, or there is nothing below it.
    """
    found = _FRONT.match(text)
    if found is None:
        raise PolicyUnreadable(
            "does not begin with front matter, expected id and version between two lines of ---", line=1
        )
    front = _front(found[1])
    title = front.title or front.id
    excerpts = tuple(
        Excerpt(id=front.id, version=front.version, heading=heading or title, text=body)
        for heading, body in _sections(text[found.end() :])
    )
    if not excerpts:
        raise PolicyUnreadable("says nothing below its front matter, expected text")
    return PolicyFile(id=front.id, version=front.version, title=title, excerpts=excerpts)


def _front(text: str) -> _Front:
    try:
        values: Any = yaml.load(text, Loader=yaml.BaseLoader)  # builds nothing but strings, lists, dicts
    except yaml.MarkedYAMLError as exc:
        line = exc.problem_mark.line + 2 if exc.problem_mark else 1
        raise PolicyUnreadable(f"front matter is not YAML: {exc.problem}", line=line) from exc
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as exc:  # the last two: escapes beyond Unicode
        raise PolicyUnreadable("front matter is not YAML", line=1) from exc
    try:
        front = msgspec.convert(values, _Front)
    except msgspec.ValidationError as exc:
        raise PolicyUnreadable(f"front matter is unusable: {str(exc).replace('`', '')}", line=1) from exc
    try:
        f"{front.version}{front.title}".encode()
    except UnicodeEncodeError as exc:
        raise PolicyUnreadable("front matter escapes half a character, expected Unicode text", line=1) from exc
    return front


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Heading and body of each part that says something."""
    above: list[tuple[int, str]] = []
    body: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if opened and not fence:
            fence = opened[1]
        elif opened and opened[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = None if fence or opened else _HEADING.fullmatch(line)
        if heading is None:
            body.append(line)
            continue
        yield from _section(above, body)
        level = len(heading[1])
        above = [(outer, name) for outer, name in above if outer < level]
        above.append((level, _name(heading[2] or "")))
        body = []
    yield from _section(above, body)


def _name(text: str) -> str:
    """Of a heading, without the signs that may close it."""
    name = text.strip()
    bare = name.rstrip("#")
    name = name if bare and bare[-1] not in _BLANKS else bare.rstrip()
    return name if len(name) <= _NAME_CHARS_MAX else cut(name, chars_max=_NAME_CHARS_MAX)


def _section(above: list[tuple[int, str]], body: list[str]) -> Iterator[tuple[str, str]]:
    if text := "\n".join(body).strip():
        yield _BETWEEN.join(name for _, name in above if name), text
