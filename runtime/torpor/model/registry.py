"""The models of a home: which adapter an agent's ``[model]`` table names, and what agents of one host share.

Above: the composition root. A kind that needs a slow library imports it when it is first used, not here.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import msgspec
import structlog

from torpor.clock import Clock, IdSource
from torpor.errors import ConfigError
from torpor.misfits import Words, misfit_in_toml, seen
from torpor.model.anthropic_host import AnthropicHost
from torpor.model.anthropic_options import FALLBACK_ONLY, AnthropicOptions
from torpor.model.circuit import Circuit, CircuitOptions, CircuitState
from torpor.model.contract import Model
from torpor.model.keys import read_key
from torpor.model.local import LocalHost, LocalServer, local_options
from torpor.model.options import LocalOptions
from torpor.model.rehearsal import scripted_from
from torpor.model.windows import window_of
from torpor.provider_errors import ProviderError

KINDS = ("anthropic", "local", "scripted")
_log = structlog.get_logger()


class ModelStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Now."""

    circuit: Mapping[tuple[str, str], int]
    """By host and state: 1 for the one that the host's circuit is in, 0 for the others."""


class ModelRegistry:
    """Makes models; agents that name one host share its circuit."""

    def __init__(
        self, *, home: Path, environ: Mapping[str, str], clock: Clock, ids: IdSource, circuit: CircuitOptions
    ) -> None:
        self._home = home
        self._environ = environ
        self._clock = clock
        self._ids = ids
        self._circuit = circuit
        self._circuits: dict[str, Circuit] = {}
        self._hosts: list[AnthropicHost] = []
        self._local_servers: dict[LocalOptions, LocalServer] = {}

    def model(self, table: Mapping[str, Any], *, where: str) -> Model:
        """The model of an agent's ``[model]`` table.

        Args: where: the agent's file, for errors.
        Raises: ConfigError: no adapter has this kind, or it cannot be used.
        """
        match table.get("kind"):
            case "scripted":
                return scripted_from(table, home=self._home, where=where)
            case "anthropic":
                return self._anthropic(table, where=where)
            case "local":
                return self._local(table, where=where)
            case kind:
                raise ConfigError(where, key="model.kind", found=kind, expected=f"one of {', '.join(KINDS)}")

    def statistics(self) -> ModelStatistics:
        states = ((host, circuit, state) for host, circuit in self._circuits.items() for state in CircuitState)
        return ModelStatistics(
            circuit={(host, state.value): int(circuit.state is state) for host, circuit, state in states}
        )

    def is_rehearsed(self, table: Mapping[str, Any], *, where: str) -> bool:
        """Whether no language model is behind an agent with this table. Raises: ConfigError."""
        return is_rehearsed(table, environ=self._environ, where=where)

    def fallbacks(self) -> tuple[AnthropicHost, ...]:
        """For each host made so far that names a fallback, one that asks it first."""
        return tuple(host.of_fallback() for host in self._hosts if host.options.fallback)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Beside the block, load what the first call would wait for; readiness does not wait for it. Connections are
        closed behind it."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._warm, name="models:warm")
                yield
                tasks.cancel_scope.cancel()
        finally:
            for host in self._hosts:
                await host.aclose()

    async def _warm(self) -> None:
        for host in self._hosts:
            try:
                await host.warm()
            except ProviderError as exc:
                _log.error("model.not_loaded", model=host.options.model, why=str(exc))
        for host in self._hosts:
            await _compare_window(host)

    def _anthropic(self, table: Mapping[str, Any], *, where: str) -> Model:
        options = anthropic_options(table, where=where)
        key = read_key(options, environ=self._environ, where=where)
        if not key and options.rehearsal:
            scripted: dict[str, Any] = {"kind": "scripted", "rehearsal": options.rehearsal}
            if options.pace_cps is not None:
                scripted["pace_cps"] = options.pace_cps
            return scripted_from(scripted, home=self._home, where=where)
        if not key:
            expected = f"an API key in the variable {options.key_env}"
            raise ConfigError(where, key="model key", found=Words("missing"), expected=expected)
        circuit = self._circuits.setdefault(options.base_url, Circuit(self._circuit, clock=self._clock))
        host = AnthropicHost(options, key=key, circuit=circuit, clock=self._clock)
        self._hosts.append(host)
        return host

    def _local(self, table: Mapping[str, Any], *, where: str) -> Model:
        options = local_options(table, home=self._home, where=where)
        if options not in self._local_servers:
            self._local_servers[options] = LocalServer(options, key=self._ids.new_id() + self._ids.new_id())
        circuit = self._circuits.setdefault(options.path, Circuit(self._circuit, clock=self._clock))
        host = LocalHost(self._local_servers[options], circuit=circuit, clock=self._clock)
        self._hosts.append(host)
        return host

    def __repr__(self) -> str:
        return f"<ModelRegistry hosts={len(self._hosts)}>"


async def _compare_window(host: AnthropicHost) -> None:
    """Warn when the host's word and ours differ; a host that does not answer is found out by the first turn."""
    options = host.options
    ours = window_of(options.model, override=options.window_tokens)
    try:
        theirs = await host.window_tokens()
    except ProviderError as exc:
        _log.info("model.window_not_told", model=options.model, why=exc.code)
        return
    if theirs is not None and theirs != ours:
        _log.warning("model.window_differs", model=options.model, assumed_tokens=ours, told_tokens=theirs)


def anthropic_options(table: Mapping[str, Any], *, where: str) -> AnthropicOptions:
    """The table of an agent of that kind. Raises: ConfigError: a key is unknown, missing or of another type."""
    try:
        options = msgspec.convert(table, AnthropicOptions)
    except msgspec.ValidationError as exc:
        why = misfit_in_toml(exc, AnthropicOptions, key="model", value=dict(table))
        raise ConfigError(where, key=f"model{why.path}", found=seen(why, dict(table)), expected=why.expected) from exc
    for key in () if options.fallback else FALLBACK_ONLY:
        if (found := getattr(options, key)) is not None:
            expected = "a model named by model.fallback, or no such key"
            raise ConfigError(where, key=f"model.{key}", found=found, expected=expected)
    for key, url in (("base_url", options.base_url), ("proxy", options.proxy or "http://")):
        if not url.startswith(("http://", "https://")):
            found = url.rpartition("@")[2]  # the rest may be a password
            raise ConfigError(where, key=f"model.{key}", found=found, expected="a URL of http or https")
    if "@" in urlsplit(options.base_url).netloc:
        # It is told in errors, and the key would give way to what stands there.
        expected = "a URL without user and password; the key comes from model.key_env or model.key_file"
        raise ConfigError(where, key="model.base_url", found=Words("one with a user"), expected=expected)
    for mark, part in (("?", "query"), ("#", "fragment")):
        if mark in options.base_url:  # it may be a key, and would be told in errors and numbers
            expected = "a URL without query and fragment; the key comes from model.key_env or model.key_file"
            raise ConfigError(where, key="model.base_url", found=Words(f"one with a {part}"), expected=expected)
    return options


def is_rehearsed(table: Mapping[str, Any], *, environ: Mapping[str, str], where: str) -> bool:
    """Whether no language model is behind an agent with this ``[model]`` table. Raises: ConfigError."""
    if table.get("kind") == "local":
        return False
    if table.get("kind") != "anthropic":
        return True
    options = anthropic_options(table, where=where)
    return bool(options.rehearsal) and not read_key(options, environ=environ, where=where)
