"""``torpor doctor``: asks model hosts and the object store one small thing each, says what is wrong and what to do."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import anyio
import click
import msgspec

from torpor import app
from torpor.cli.folders import home_option
from torpor.cli.local_model import model_file_option, model_option, with_local_model
from torpor.cli.output import json_option, print_json, print_table
from torpor.clock import SystemClock
from torpor.errors import ConfigError
from torpor.model.anthropic_host import AnthropicHost
from torpor.model.local import LocalHost
from torpor.model.windows import window_of
from torpor.operations.logs import configure_logs
from torpor.provider_errors import ProviderError
from torpor.settings import Asking, Settings, read_settings
from torpor.store.bucket_trouble import place_of
from torpor.store.open_blobs import open_blobs, trouble_with
from torpor.variables import as_it_was_set

_DEADLINE_S: Final = 60.0
"""For one model, the import of the SDK included."""
_REMEDIES: Final = {
    "model_key_refused": "put a valid key into {key}",
    "model_billing_refused": "look at the account's credit and limits",
    "model_unknown": "name a model that the host serves in {file}",
    "model_unavailable": "check the network, model.base_url and model.proxy in {file}",
    "model_stream_lost": "check what stands between here and the host, such as a proxy",
    "model_rate_limited": "key and model are good, wait and try again",
    "model_overloaded": "key and model are good, wait and try again",
}

_NOT_ASKED: Final = (
    "torpor: this goes by the files and the environment here; no running server was asked, which may have been started"
    " with others"
)

_BLOBS: Final = "[blobs]"


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found out about one model of an agent."""

    agent: str
    """Or ``[blobs]``, of the object store in the settings."""
    model: str
    """Or the bucket."""
    state: str
    """``ok``, ``rehearsed`` (no language model is behind it) or ``wrong``."""
    detail: str
    remedy: str = ""
    window_tokens: int = 0
    """As the host tells it, or as it is assumed; 0 for none."""


@click.command(short_help="Check keys, models and the network.")
@home_option
@model_option
@model_file_option
@json_option
def command(home: Path, *, instead: str | None, model_file: Path | None, as_json: bool) -> int:
    """Ask the model of each agent for one token, and an object store for a name; exit with 1 if anything is wrong.

    An agent without a key that has a rehearsal is not wrong: it is told as rehearsed. No running server is asked.
    """
    settings = with_local_model(
        read_settings(home.resolve(), os.environ), instead=instead, file=model_file, environ=os.environ
    )
    configure_logs(msgspec.structs.replace(settings.logs, level="error"))  # what is wrong is told below
    diagnoses = anyio.run(examined, settings, os.environ)
    if as_json:
        for diagnosis in diagnoses:
            print_json(diagnosis)
    else:
        rows = [(found.agent, found.model, found.state, found.detail) for found in diagnoses]
        print_table(("AGENT", "MODEL", "STATE", "DETAIL"), rows)
        for found in diagnoses:
            if found.remedy:
                click.echo(f"{found.agent}: {found.remedy}")
        click.echo(_NOT_ASKED, err=True)
    return int(any(found.state == "wrong" for found in diagnoses))


async def examined(settings: Settings, environ: Mapping[str, str]) -> list[Diagnosis]:
    """Every model of every agent, and of sub-agents that have one of their own."""
    found: list[Diagnosis] = []
    for agent in settings.asking:
        where = agent.where
        models = app.model_registry(settings, clock=SystemClock(), environ=environ)
        try:
            model = models.model(agent.model, where=where)
        except ConfigError as exc:
            told = str(exc).removeprefix(f"{where}: ")
            found.append(Diagnosis(agent=agent.name, model=_name(agent), state="wrong", detail=told))
            continue
        if not isinstance(model, AnthropicHost):
            found.append(_rehearsed(agent))
            continue
        for host in (model, *models.fallbacks()):
            found.append(await _diagnosed(agent.name, host, where=where))
            await host.aclose()
    return [*found, *await _blobs(settings, environ)]


async def _blobs(settings: Settings, environ: Mapping[str, str]) -> list[Diagnosis]:
    """The object store, where blobs lie in one."""
    options = settings.blobs
    if options.kind != "s3":
        return []
    state, remedy = "wrong", ""
    try:
        blobs = open_blobs(options, folder=settings.home, environ=environ)
    except ConfigError as exc:
        detail = str(as_it_was_set(exc, environ))
    else:
        trouble = await trouble_with(blobs)
        state, detail = ("wrong", trouble.what) if trouble else ("ok", f"{place_of(options)} answers")
        remedy = trouble.remedy if trouble else ""
    return [Diagnosis(agent=_BLOBS, model=options.bucket, state=state, detail=detail, remedy=remedy)]


def _rehearsed(agent: Asking) -> Diagnosis:
    played = f"plays config/rehearsals/{agent.model.get('rehearsal')}.toml"
    if agent.model.get("kind") == "scripted":
        return Diagnosis(agent=agent.name, model=_name(agent), state="rehearsed", detail=played)
    key = agent.model.get("key_env", "ANTHROPIC_API_KEY")
    return Diagnosis(
        agent=agent.name,
        model=_name(agent),
        state="rehearsed",
        detail=f"there is no key, so it {played}",
        remedy=f"set {key} to make it real",
    )


async def _diagnosed(agent: str, host: AnthropicHost, *, where: str) -> Diagnosis:
    """One cheap call, and the question how much the model holds."""
    options = host.options
    ours = window_of(options.model, override=options.window_tokens)
    try:
        with anyio.fail_after(_DEADLINE_S):
            await host.probe()
            theirs = await host.window_tokens()
    except TimeoutError:
        detail, code = f"no answer within {_DEADLINE_S:g} s", "model_unavailable"
    except ProviderError as exc:
        detail, code = f"{exc.code}: {exc}", exc.code
    else:
        differs = f", {ours} are assumed" if theirs is not None and theirs != ours else ""
        remedy = f"set model.window_tokens in {where} to {theirs}" if differs else ""
        detail = f"answers; its window is {theirs or ours} tokens{differs}"
        window_tokens = theirs or ours
        return Diagnosis(
            agent=agent, model=options.model, state="ok", detail=detail, remedy=remedy, window_tokens=window_tokens
        )
    if isinstance(host, LocalHost):
        remedy = "name a GGUF file that llama.cpp can load"
        return Diagnosis(agent=agent, model=options.model, state="wrong", detail=detail, remedy=remedy)
    key = options.key_file or options.key_env
    remedy = _REMEDIES.get(code, "check the options of [model] in {file}").format(key=key, file=where)
    return Diagnosis(agent=agent, model=options.model, state="wrong", detail=detail, remedy=remedy)


def _name(agent: Asking) -> str:
    return str(agent.model.get("model", agent.model.get("kind", "")))
