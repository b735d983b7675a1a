"""``torpor verify``: whether what is stored makes the requests that it says were sent."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio
import click
import msgspec

from torpor.cli.folders import data_folder, data_option, home_option
from torpor.cli.output import json_option, print_json, program
from torpor.cli.paths import resolved, shortened
from torpor.cli.stored_blobs import stored_blobs
from torpor.operations.audit import Verdict, verdict_on
from torpor.operations.counted import counted
from torpor.operations.erased import judged_copy
from torpor.operations.export import BadExport, read_header
from torpor.records.ids import DEFAULT_TENANT, ConversationKey
from torpor.records.journal import SubagentFinished
from torpor.store.contract import Blobs, Tombstone
from torpor.store.sqlite.auditing import AuditReader, open_to_audit


@click.command(short_help="Rebuild every request from the journal and compare.")
@click.argument("name", metavar="[ID]", required=False)
@click.option("--all", "is_all", is_flag=True, help="Every conversation of the data folder.")
@click.option(
    "--export",
    "copy",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A file of `torpor export`: whether it is what was erased here. See `torpor import --check` as well.",
)
@home_option
@data_option
@json_option
def command(*, name: str | None, is_all: bool, copy: Path | None, home: Path, data: Path | None, as_json: bool) -> int:
    """Verify the conversation ID, or with --all every one, and exit with 1 if anything differs.

    Reads the data folder alone, whether or not a server runs on it. ID is [tenant/]owner/conversation, short where
    that is unique. What its sub-agents wrote is verified with it, as long as it is kept; of the others it says how many
    they are. Of one that was erased it says when and why; its ID has to be told with the owner.
    """
    if [name is not None, is_all, copy is not None].count(True) != 1:
        raise click.UsageError("Name one conversation, or give --all or --export.")
    folder = data_folder(home, data)
    with open_to_audit(folder) as reader:
        if copy is not None:
            return _verify_copy(reader, copy, as_json=as_json)
        known = list(reader.keys())
        meant = known if name is None else _family(_erased(reader, name, known) or named(name, known), known)
        differs = anyio.run(_verified, reader, stored_blobs(home, folder), meant, as_json)
        return max(differs, _faults(reader, as_json=as_json)) if is_all else differs


def named(name: str, known: Sequence[ConversationKey | str]) -> ConversationKey:
    """The one of ``known`` that ``name`` stands for, which no sub-agent is.

    Raises: click.ClickException: there is none, or several.
    """
    keys = {key.path: key for key in known if isinstance(key, ConversationKey) and not key.is_child}
    return keys[resolved(name, keys)]


def _family(key: ConversationKey, known: Sequence[ConversationKey | str]) -> list[ConversationKey | str]:
    """The conversation, and those of ``known`` that work or worked for it."""
    return [key, *(each for each in known if isinstance(each, ConversationKey) and each.is_child and each.root == key)]


def _erased(reader: AuditReader, name: str, known: Sequence[ConversationKey | str]) -> ConversationKey | None:
    """The one of this name that is not there any more; None when it is, or never was."""
    parts = [DEFAULT_TENANT, *name.split("/")][-3:]
    if name.count("/") not in {1, 2}:
        return None
    key = ConversationKey(*parts)
    return key if key not in known and reader.tombstones(key) else None


def _verify_copy(reader: AuditReader, copy: Path, *, as_json: bool) -> int:
    """The exit code."""
    with copy.open("rb") as lines:
        try:
            header = read_header(lines.readline())
        except BadExport as exc:
            raise click.ClickException(f"{copy} cannot be verified: {exc}") from exc
        key = ConversationKey(header.tenant, header.owner, header.conversation)
        verdict = judged_copy(header, lines, tombstones=reader.tombstones(key), secret=reader.tombstone_secret())
    if as_json:
        print_json({"path": key.path, **msgspec.to_builtins(verdict)})
    elif verdict.tombstone is None and not verdict.compared:
        remedy = f"`{program()} import --check {shlex.quote(str(copy))}` verifies the file by itself"
        click.echo(f"{copy}  not compared: {verdict.difference}; {remedy}")
    elif verdict.tombstone is None:
        click.echo(f"{copy}  DIFFERS: {verdict.difference}")
    else:
        click.echo(f"{copy}  is {shortened(key.path)}, whole: {_erased_in_words(verdict.tombstone)}")
    return 0 if verdict.tombstone is not None else 1


def _erased_in_words(tombstone: Tombstone) -> str:
    at = datetime.fromtimestamp(tombstone.at_us // 1_000_000, tz=UTC).isoformat()
    return f"erased at {at} ({tombstone.cause}), {counted(tombstone.records, 'record')}"


def _faults(reader: AuditReader, *, as_json: bool) -> int:
    """The exit code."""
    code = 0
    for fault in reader.faults():
        code = 1
        if as_json:
            print_json({"path": "", "difference": fault})
        else:
            click.echo(f"DIFFERS: {fault}")
    return code


async def _verified(
    reader: AuditReader, blobs: Blobs, meant: Sequence[ConversationKey | str], as_json: bool
) -> int:  # anyio.run gives positions only
    """The exit code."""
    differing, retired, ends = 0, 0, dict[ConversationKey, SubagentFinished]()
    for number, key in enumerate(meant, start=1):
        verdict = await verdict_on(reader, key, blobs=blobs, ends=ends)
        differing += bool(verdict.difference)
        retired += verdict.retired
        if as_json:
            print_json(verdict)
        else:
            place = f"{number}/{len(meant)}  " if len(meant) > 1 else ""
            click.echo("\n".join(place + line for line in _in_words(verdict)))
    if not as_json and len(meant) != 1:
        gone = f"; {_retired_in_words(retired)}" if retired else ""
        click.echo(f"{_counted(meant)} verified, {differing or 'none'} of them differ{gone}")
    return 1 if differing else 0


def _counted(meant: Sequence[ConversationKey | str]) -> str:
    subagents = sum(isinstance(key, ConversationKey) and key.is_child for key in meant)
    conversations = len(meant) - subagents
    told = counted(conversations, "conversation")
    return f"{told} and {counted(subagents, 'sub-agent')}" if subagents else told


def _retired_in_words(retired: int) -> str:
    is_one = retired == 1
    return (
        f"{retired} sub-agent{'' if is_one else 's'} not kept any longer, {'its' if is_one else 'their'} digests stand"
    )


def _in_words(verdict: Verdict) -> Iterator[str]:
    path = shortened(verdict.path)
    if verdict.erased is not None:
        yield f"{path}  {_erased_in_words(verdict.erased)}"
    elif not verdict.difference and not verdict.records:
        yield f"{path}  is not kept any longer"
    elif not verdict.difference:
        more = f", {counted(len(verdict.blobs), 'blob')}" if verdict.blobs else ""
        more += f"; {_retired_in_words(verdict.retired)}" if verdict.retired else ""
        done = f"{counted(verdict.records, 'record')}, {counted(verdict.requests, 'request')}"
        yield f"{path}  verified: {done} rebuilt{more}"
    elif verdict.seq:
        yield f"{path}  DIFFERS at record {verdict.seq}: {verdict.difference}"
    else:
        yield f"{path}  DIFFERS: {verdict.difference}"
