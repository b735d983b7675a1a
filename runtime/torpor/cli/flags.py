"""``torpor flags``: what a home declares, and what is decided for somebody."""

import os
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from torpor.cli.folders import home_option
from torpor.cli.output import json_option, print_json, print_table
from torpor.clock import SystemClock
from torpor.flags.contract import Decided, FlagContext
from torpor.flags.declared import Flag
from torpor.flags.face import Flags
from torpor.flags.source import FLAGS_FILE
from torpor.flags.wording import rule_in_words, switch_in_words
from torpor.operations.logs import configure_logs
from torpor.records.ids import DEFAULT_TENANT
from torpor.settings import Settings, read_settings

_NOT_ASKED: Final = (
    f"torpor: this is {FLAGS_FILE} as it is now; no running server was asked, which takes an edit within about two"
    " seconds and logs it as flags.changed or flags.broken"
)


@click.command(short_help="Show what is switched on, and for whom.")
@click.option("--tenant", metavar="TENANT", show_default=DEFAULT_TENANT, help="Decide for an owner of this tenant.")
@click.option("--owner", default="", metavar="OWNER", help="Decide for this owner.")
@click.option("--agent", default="", metavar="NAME", help="Decide for this agent.")
@home_option
@json_option
def command(home: Path, *, tenant: str | None, owner: str, agent: str, as_json: bool) -> None:
    """List the flags of config/flags.toml; with --owner, what is decided, by which variant and for which reason.

    The file is read as it is now, and the provider that [flags] names is asked as a server would ask it; a running
    server is not asked.
    """
    if not owner and (tenant is not None or agent):
        raise click.UsageError(f"{'--tenant' if tenant is not None else '--agent'} decides nothing without --owner.")
    settings = read_settings(home.resolve(), os.environ)
    configure_logs(msgspec.structs.replace(settings.logs, level="warning"))
    flags = Flags(settings.home, clock=SystemClock(), options=settings.flags)
    flags.load()
    decided = None
    if owner:
        context = FlagContext(tenant=tenant or DEFAULT_TENANT, owner=owner, agent=agent or _default_agent(settings))
        decided = anyio.run(_asked, flags, context)
    if as_json:
        for key, flag in flags.declarations.items():
            print_json({"key": key, **msgspec.to_builtins(flag), **_fields(key, decided)})
    elif not flags.declarations:
        click.echo(f"{FLAGS_FILE} declares nothing, everything is on")
    else:
        head = ("FLAG", "DEFAULT", *(("DECIDED", "VARIANT", "REASON") if decided else ()), "RULES")
        print_table(head, [_cells(key, flag, decided) for key, flag in flags.declarations.items()])
        click.echo(_NOT_ASKED, err=True)


async def _asked(flags: Flags, context: FlagContext) -> Decided:
    async with flags.running():
        return await flags.ask(context)


def _default_agent(settings: Settings) -> str:
    return next((agent.name for agent in settings.agents if agent.default), settings.agents[0].name)


def _fields(key: str, decided: Decided | None) -> dict[str, object]:
    if decided is None:
        return {}
    decision = decided.decisions[key]
    return {"value": decision.value, "variant": decision.variant, "reason": decision.reason}


def _cells(key: str, flag: Flag, decided: Decided | None) -> tuple[str, ...]:
    decision = decided.decisions[key] if decided is not None else None
    told = (switch_in_words(decision.value), decision.variant, decision.reason) if decision is not None else ()
    return (key, switch_in_words(flag.default), *told, "; ".join(map(rule_in_words, flag.rules)) or "-")
