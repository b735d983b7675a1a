"""``--model local``: agents are asked through a model on this machine in place of the ones that their files name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from torpor.model.local import gguf_file, require_library
from torpor.settings import Settings

VARIABLE: Final = "TORPOR_LOCAL_MODEL"
_PLACE: Final = "command line"

model_option: Final = click.option(
    "--model",
    "instead",
    type=click.Choice(["local"]),
    help="Ask a model on this machine, in place of those that the agents name.",
)
model_file_option: Final = click.option(
    "--model-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help=f"The GGUF file of --model local, otherwise named by {VARIABLE}.",
)


def with_local_model(
    settings: Settings, *, instead: str | None, file: Path | None, environ: Mapping[str, str]
) -> Settings:
    """``settings`` with agents that name the file; as they are when nothing stands instead. Agents that name a local
    model of their own keep it.

    Raises: ConfigError: the file or the library cannot be used. UsageError: no file is named, or one for nothing.
    """
    if instead is None:
        if file is not None:
            raise click.UsageError("--model-file is nothing without --model local")
        return settings
    named = str(file) if file is not None else environ.get(VARIABLE, "")
    if not named:
        raise click.UsageError(
            f"--model local needs a GGUF file, name it with --model-file or in {VARIABLE};"
            " docs/operators.md tells where a small one comes from"
        )
    require_library(_PLACE, key="--model")
    key = "--model-file" if file is not None else VARIABLE
    path = gguf_file(named, start=Path.cwd(), where=_PLACE, key=key)
    table = {"kind": "local", "path": str(path)}
    agents = tuple(
        agent if agent.model["kind"] == "local" else msgspec.structs.replace(agent, model=table)
        for agent in settings.agents
    )
    subagents = tuple(  # those without a model of their own ask an agent's
        msgspec.structs.replace(each, model=table) if each.model and each.model.get("kind") != "local" else each
        for each in settings.subagent_definitions
    )
    return msgspec.structs.replace(settings, agents=agents, subagent_definitions=subagents)
