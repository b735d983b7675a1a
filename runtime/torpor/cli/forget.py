"""``torpor forget``: takes everything away that is stored of an owner."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
import click
import msgspec

from torpor.cli.asking import must_mean
from torpor.cli.erasing import open_to_erase
from torpor.cli.output import json_option, print_json
from torpor.cli.paths import shortened
from torpor.cli.remote import Server, ask, server_options
from torpor.cli.stored_blobs import stored_blobs
from torpor.gateway.auth import is_owner_name
from torpor.operations.counted import counted
from torpor.records.ids import DEFAULT_TENANT

_AT_ONCE: Final = 10
"""Conversations between two answers of a server."""
_AT_ONCE_HERE: Final = 1_000
"""While the data folder is open."""
_ANSWER_S: Final = 300.0
"""For these, beside the usual: each may have a turn to be cancelled, and readers to be waited for."""
_COUNTED: Final = ("conversations", "records", "blobs")

Row = dict[str, Any]


@click.command(short_help="Delete everything that is stored of an owner.")
@click.option("--owner", required=True, metavar="[TENANT/]OWNER", help="Whose conversations are meant.")
@click.option("--dry-run", is_flag=True, help="Only count what there is.")
@click.option("--yes", is_flag=True, help="Do not ask whether it is meant.")
@server_options
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="In this data folder, on which no server runs.",
)
@json_option
def command(*, owner: str, dry_run: bool, yes: bool, server: Server, data: Path | None, as_json: bool) -> None:
    """Delete every conversation of OWNER with everything that is stored of it, those included that begin meanwhile.

    Running turns are cancelled first. It cannot be brought back. What tools did stays done, and logs, exports and
    copies of the data folder keep what they have. It is safe to stop this and to run it again, which finishes it. Exits
    with 1 unless nothing is left. Operators only.
    """
    tenant, name = _names(owner)
    shown = shortened(f"{tenant}/{name}") if tenant else name
    found = _step(server, data, owner=(tenant, name), dry_run=True)
    if dry_run:
        _tell(found, shown, begin="has", as_json=as_json)
        return
    if not yes and found["conversations"]:
        _tell(found, shown, begin="has", as_json=False, err=True)
        question = f"Delete all of it for good, whatever {shown} begins meanwhile included?"
        must_mean(question, otherwise="nothing was deleted")
    gone = _until_nothing_is_left(lambda: _step(server, data, owner=(tenant, name), dry_run=False))
    _check(gone, shown)
    _tell(gone, shown, begin="is forgotten:", as_json=as_json)


def _names(owner: str) -> tuple[str, str]:
    """Tenant, empty for one's own, and owner. Raises: click.BadParameter."""
    tenant, _, name = owner.rpartition("/")
    if not is_owner_name(name) or not (is_owner_name(tenant) or "/" not in owner):
        raise click.BadParameter(f"{owner!r} is no owner, expected [tenant/]owner", param_hint="--owner")
    return tenant, name


def _step(server: Server, data: Path | None, *, owner: tuple[str, str], dry_run: bool) -> Row:
    """Some of it, or all of what there is counted, here or by the server."""
    tenant, name = owner
    if data is not None:
        home = server.home
        return anyio.run(_step_here, data, home, tenant or DEFAULT_TENANT, name, dry_run)
    path = "/".join(filter(None, owner))
    return ask(server, lambda asked: asked.forget(path, limit=_AT_ONCE, dry_run=dry_run), extra_s=_ANSWER_S)


async def _step_here(
    data: Path, home: Path, tenant: str, owner: str, dry_run: bool
) -> Row:  # anyio.run gives positions only
    async with open_to_erase(data, stored_blobs(home, data)) as directory:
        if dry_run:
            return msgspec.structs.asdict(await directory.survey(tenant=tenant, owner=owner))
        found = await directory.forget(tenant=tenant, owner=owner, limit=_AT_ONCE_HERE, principal="operator")
        return msgspec.structs.asdict(found)


def _until_nothing_is_left(forget: Callable[[], Row]) -> Row:
    """What it came to; stops as well when no more is gained."""
    gone = dict.fromkeys(_COUNTED, 0)
    while True:
        row = forget()
        gone = {name: gone[name] + row[name] for name in _COUNTED}
        if not row["left"] or not row["conversations"]:
            return {**gone, "left": row["left"], "lingers": row["lingers"]}


def _check(gone: Row, shown: str) -> None:
    """Raises: click.ClickException: something is left."""
    is_one = gone["conversations"] == 1
    counts = f"{counted(gone['conversations'], 'conversation')} {'is' if is_one else 'are'} gone"
    if gone["left"]:
        remedy = "the server's log says why; run it again"
        raise click.ClickException(f"{counts}, {gone['left']} of {shown} are left, {remedy}")
    if gone["lingers"]:
        remedy = "close what reads it, and run this again"
        raise click.ClickException(
            f"{counts}, and another program keeps what was in them in the database's log, {remedy}"
        )


def _tell(row: Row, shown: str, *, begin: str, as_json: bool, err: bool = False) -> None:
    if as_json:
        print_json({"owner": shown, **row})
    else:
        counts = ", ".join(counted(row[name], name.removesuffix("s")) for name in _COUNTED)
        click.echo(f"{shown} {begin} {counts if any(row[name] for name in _COUNTED) else 'nothing'}", err=err)
