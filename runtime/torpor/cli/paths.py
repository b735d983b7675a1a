"""IDs of conversations as people write them: ``[tenant/]owner/conversation``, short where that is unique."""

import re
from collections.abc import Iterable
from typing import Final

import click

from torpor.records.ids import DEFAULT_TENANT

_PARTS: Final = 3
_SHOWN_MAX: Final = 5
_CHILD: Final = re.compile(r"(.+?)/([0-9a-f]{16}(?:/[0-9a-f]{16})*)")
"""Of a sub-agent, as ``torpor verify`` names it."""


def is_whole(name: str) -> bool:
    """Whether ``name`` is a path already."""
    return name.count("/") == _PARTS - 1


def resolved(name: str, paths: Iterable[str]) -> str:
    """The one path among ``paths`` that ends with the parts of ``name``.

    Raises: click.ClickException: none does, or more than one.
    """
    return _resolved(name, paths, what="conversation", lister="ps")


def found_among(name: str, paths: Iterable[str]) -> str | None:
    """The same; None where no path does. Raises: click.ClickException: more than one does."""
    return _found(name, paths, what="conversation")


def resolved_job(name: str, paths: Iterable[str]) -> str:
    """The same for a job, whose path is that of its conversation, a slash, and its id."""
    return _resolved(name, paths, what="job", lister="jobs")


def missing_child(name: str, child: str, *, above: str = "") -> click.ClickException:
    """Args: name: of the conversation.  child: of a sub-agent whose journal is not there.  above: of that for which it
    works, if it is not the conversation."""
    of, where = (f"{name}/{above}", f"{name} --child {above}") if above else (name, name)
    why = "it never had one, or its journal is not kept any longer"
    return click.ClickException(f"no sub-agent {child!r} of {of!r} here, {why}; `torpor inspect {where}` names them")


def child_hint(name: str) -> str:
    """Of an ID that may be the name of a sub-agent: how one is shown; else nothing."""
    found = _CHILD.fullmatch(name)
    return f"; a sub-agent is shown by `torpor inspect {found[1]} --child {found[2]}`" if found else ""


def child_of(name: str, child: str, *, begun: Iterable[str], above: str = "") -> str:
    """The one of the sub-agents ``begun`` whose name begins with ``child``. Args: name, above: as of ``missing_child``.

    Raises: click.ClickException: none does, or more than one.
    """
    found = sorted(each for each in set(begun) if each.startswith(child))
    if not found or not child:
        raise missing_child(name, child, above=above)
    if len(found) > 1 and child not in found:
        several = ", ".join([*found[:_SHOWN_MAX], *(["…"] if len(found) > _SHOWN_MAX else [])])
        of = f"{name}/{above}" if above else name
        raise click.ClickException(f"sub-agent {child!r} of {of!r} may be any of {several}, name more of it")
    return found[0]


def _resolved(name: str, paths: Iterable[str], *, what: str, lister: str) -> str:
    if (found := _found(name, paths, what=what)) is None:
        raise click.ClickException(f"no {what} {name!r} here, `torpor {lister}` lists them{child_hint(name)}")
    return found


def _found(name: str, paths: Iterable[str], *, what: str) -> str | None:
    wanted = name.split("/")
    found = [path for path in paths if path.split("/")[-len(wanted) :] == wanted]
    if len(found) > 1:
        several = ", ".join([*map(shortened, found[:_SHOWN_MAX]), *(["…"] if len(found) > _SHOWN_MAX else [])])
        raise click.ClickException(f"{what} {name!r} may be any of {several}, name more of it")
    return found[0] if found else None


def shortened(path: str) -> str:
    """``path`` without the tenant that everybody belongs to who names none."""
    return path.removeprefix(f"{DEFAULT_TENANT}/")
