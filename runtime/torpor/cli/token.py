"""``torpor token``: signs a token with the secret of a home, or that of its data folder; asks no server."""

import os
import re
import shlex
from pathlib import Path
from typing import Final

import click

from torpor.cli.folders import data_folder, data_option, home_option, where
from torpor.cli.output import json_option, print_json, program
from torpor.clock import SystemClock
from torpor.gateway.auth import Scope, is_owner_name, mint
from torpor.gateway.key_loaders import configured_secret
from torpor.local_files import SECRET_BYTES, keep_secret, make_data_folder, read_secret
from torpor.records.ids import DEFAULT_TENANT
from torpor.settings import read_section

_TTL: Final = re.compile(r"(\d+)([smhd]?)")
_UNIT_S: Final = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Lifetime(click.ParamType[int]):
    """Seconds, or a number with s, m, h or d behind it."""

    name = "ttl"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _TTL.fullmatch(str(value))
        lifetime_s = int(match[1]) * _UNIT_S[match[2]] if match else 0
        if lifetime_s <= 0:
            self.fail(f"{value!r} is not a lifetime, expected seconds above 0, or the like of 30m, 8h, 7d", param, ctx)
        return lifetime_s


class Name(click.ParamType[str]):
    """What a person, an owner or a tenant can be called."""

    name = "name"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        told = str(value)
        if not is_owner_name(told):
            tenant, _, rest = told.partition("/")
            apart = f"; the tenant is an option of its own: --tenant {tenant} --owner {rest}"
            is_path = param is not None and param.name == "owner" and is_owner_name(tenant) and is_owner_name(rest)
            expected = f"expected 1 to 128 characters without slash or blank{apart if is_path else ''}"
            self.fail(f"{told!r} is not a name, {expected}", param, ctx)
        return told


@click.command(short_help="Sign a token for somebody.")
@click.option("--subject", type=Name(), required=True, metavar="NAME", help="Who acts.")
@click.option("--owner", type=Name(), metavar="NAME", show_default="the subject", help="Whose conversations they are.")
@click.option(
    "--tenant", type=Name(), default=DEFAULT_TENANT, show_default=True, metavar="NAME", help="Where the owner belongs."
)
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    default=[Scope.CHAT.value],
    show_default=True,
    help="What it may be used for; operator includes chat.",
)
@click.option("--ttl", "lifetime_s", type=Lifetime(), default="1d", show_default=True, help="30m, 8h, 7d or seconds.")
@home_option
@data_option
@json_option
def command(
    subject: str,
    *,
    owner: str | None,
    tenant: str,
    scopes: tuple[str, ...],
    lifetime_s: int,
    home: Path,
    data: Path | None,
    as_json: bool,
) -> None:
    """Sign a token and print it.

    The server need not run, nor have run. The secret is the one that [auth] of the home names, else that of the data
    folder, which is made where there is none. A token cannot be called back before it ends.
    """
    secret, more = _signing(home, data)
    now_us = SystemClock().now_us()
    token = mint(
        secret,
        subject=subject,
        owner=owner,
        tenant=tenant,
        scopes=scopes,
        now_us=now_us,
        lifetime_s=lifetime_s,
        more=more,
    )
    if as_json:
        facts = {"token": token, "subject": subject, "owner": owner or subject, "tenant": tenant, "scopes": scopes}
        print_json({**facts, "expires_at_us": now_us + lifetime_s * 1_000_000})
    else:
        click.echo(token)


def _signing(home: Path, data: Path | None) -> tuple[bytes, dict[str, str]]:
    """The secret, and what else a server of the home asks of tokens that it signed."""
    auth = read_section(home.resolve(), os.environ, name="auth")
    if (given := configured_secret(auth, home=home.resolve(), environ=os.environ)) is not None:
        return given, {claim: value for claim, value in (("iss", auth.issuer), ("aud", auth.audience)) if value}
    folder = data_folder(home, data)
    if (own := read_secret(folder)) is not None:
        return own, {}
    if not (home / "config").is_dir():
        remedy = f"name an agent home, or make one with `{program()} init {shlex.quote(str(home))}`"
        raise click.ClickException(f"no secret in {folder}, and {home} is no agent home; {remedy}")
    make_data_folder(folder)
    own = keep_secret(folder, fresh=os.urandom(SECRET_BYTES))
    click.echo(f"torpor: new secret in {folder}, as of a first start: `{program()} serve{where(home, data)}`", err=True)
    return own, {}
