"""A model on this machine: a GGUF file, run inside this process by llama.cpp, for people without a key or a network.

llama.cpp comes with a server that speaks the Messages API, so the adapter for such hosts asks it like any other, over a
port of the loopback address that only this process has the key of. Loading takes from half a second to minutes and goes
on in a thread; the first call waits for it. The library, ``xllamacpp``, is the extra ``local``.

One call at a time: the cores are the same for all of them, and a second one would only slow the first.
"""

import importlib
import importlib.util
import os
import threading
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec
import structlog

from torpor.clock import Clock
from torpor.errors import ConfigError
from torpor.misfits import misfit_in_toml, seen
from torpor.model.anthropic_host import AnthropicHost
from torpor.model.anthropic_options import AnthropicOptions
from torpor.model.circuit import Circuit
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.model.options import LocalOptions
from torpor.provider_errors import ModelUnknown, ProviderUnavailable

LIBRARY: Final = "xllamacpp"
SYSTEM: Final = "You are a helpful assistant. You answer briefly, and you say so when you do not know."
"""For an agent that has none: templates of small models make one up when nobody gives it."""
_MAGIC: Final = b"GGUF"
_LOOPBACK: Final = "127.0.0.1"
_BATCH_TOKENS: Final = 128
"""Of a prompt, between two looks at whether anybody still waits; its own 2,048 are half a minute on one core."""
_PROMPTS_MIB: Final = 256
"""For the prompts of other conversations, kept so that they need not be read again; its own are 8 GiB."""
_ANSWER_S: Final = 120.0
"""Of a server that has loaded its file, to a prompt of one token: some milliseconds, with a large model seconds."""
_CLOSE_S: Final = 30.0
"""To end a load that is under way, which cannot be stopped."""
_log = structlog.get_logger()


class LocalServer:
    """One file in memory, with its server; shared by agents that name it alike. All but ``aclose`` blocks."""

    def __init__(self, options: LocalOptions, *, key: str) -> None:
        """Args: key: what calls must show, since others on this machine can reach the port as well."""
        self.options = options
        self.key = key
        self.turn = anyio.Lock()
        """Held by the one call that is being answered."""
        self._changing = threading.Lock()
        self._server: Any = None
        self._fault = ""

    def url(self) -> str:
        """Where it listens, once the file is loaded. Raises: ModelUnknown: it cannot be loaded, now or ever."""
        with self._changing:
            if self._fault:
                raise ModelUnknown(self._fault)
            if self._server is None:
                self._load()
            return str(self._server.listening_address)

    def close(self) -> None:
        """Free the memory; a load under way ends first. It is not loaded again."""
        with self._changing:
            self._server = None  # the library has no other way; it holds the interpreter until calls under way end
            self._fault = self._fault or f"the model of {self.options.path} was closed"

    async def aclose(self) -> None:
        """``close``, in a bounded time."""
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await anyio.to_thread.run_sync(self.close, abandon_on_cancel=True)

    def _load(self) -> None:
        threads = self.options.threads or free_cores(cores=_cores(), load=_load_average())
        try:
            library = importlib.import_module(LIBRARY)
            self._server = library.Server(self._parameters(library.CommonParams(), threads=threads))
            _at_work(str(self._server.listening_address), key=self.key)
        except (ImportError, OSError, RuntimeError, HTTPException) as exc:
            self._fault = f"llama.cpp cannot load {self.options.path}: {exc}"
            raise ModelUnknown(self._fault) from exc
        _log.info("model.loaded", file=self.options.path, threads=threads, window_tokens=self.options.window_tokens)

    def _parameters(self, parameters: Any, *, threads: int) -> Any:
        parameters.model.path = self.options.path
        parameters.model_alias = {Path(self.options.path).stem}  # what replies call it, and so the journal
        parameters.n_ctx = self.options.window_tokens
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        parameters.n_parallel = 1
        parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
        parameters.cache_ram_mib = _PROMPTS_MIB
        parameters.hostnames, parameters.port = [_LOOPBACK], 0
        parameters.api_keys = [self.key]
        parameters.ui = parameters.endpoint_slots = parameters.endpoint_props = False
        parameters.offline = True
        parameters.verbosity = -1  # standard output is ours
        return parameters

    def __repr__(self) -> str:
        return f"<LocalServer {self.options.path} loaded={self._server is not None}>"


def _at_work(url: str, *, key: str) -> None:
    """Return once the queue of a server that was just made is served: one that is closed before never ends, and holds
    the interpreter all the while. Its page on health answers earlier than that.

    Raises: OSError, HTTPException: it does not answer.
    """
    where = urlsplit(url)
    with closing(HTTPConnection(where.hostname or "", where.port, timeout=_ANSWER_S)) as line:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        line.request("POST", "/completion", b'{"prompt": " ", "n_predict": 0}', headers)
        line.getresponse().read()


class LocalHost(AnthropicHost):
    """Implements ``model.contract.Model`` for one agent, by asking a ``LocalServer`` as a host of the Messages API."""

    def __init__(self, server: LocalServer, *, circuit: Circuit, clock: Clock) -> None:
        self._server = server
        options = AnthropicOptions(
            kind="anthropic",
            model=server.options.kind,
            base_url=f"http://{_LOOPBACK}",  # the port is known once it is loaded
            cache_ttl="off",
            window_tokens=server.options.window_tokens,
            progress_deadline_s=server.options.progress_deadline_s,
        )
        super().__init__(options, key=server.key, circuit=circuit, clock=clock)

    def request_fields(self) -> Mapping[str, Any]:
        """See the contract; the agent's own prompt wins over this one."""
        return {"system": [{"type": "text", "text": SYSTEM}]}

    async def warm(self) -> None:
        """Load the file, then as any host. Raises: ModelUnknown: it cannot be loaded.

        Cancellation: at once; the load goes on in its thread, and the next call waits for the same one.
        """
        if self._client is None:
            url = await anyio.to_thread.run_sync(self._server.url, abandon_on_cancel=True)
            self.options = msgspec.structs.replace(self.options, base_url=url)
            await super().warm()
            # The server ends connections when it likes, which a call that begins on an old one takes for its death.
            client: Any = self._client
            self._client = client.with_options(default_headers={"connection": "close"})

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        """See the contract; waits for the call before it, which only the turn's own deadline bounds."""
        async with self._server.turn:
            return await super().reply(request, sink)

    async def window_tokens(self) -> int | None:
        """What of the context the file supports. Raises: ProviderError."""
        await self.warm()
        with self._faults_translated(self.options.model):
            told = await self._client.get("/v1/models", cast_to=object)
        try:
            return int(told["data"][0]["meta"]["n_ctx"])
        except (LookupError, TypeError, ValueError) as exc:
            raise ProviderUnavailable(f"llama.cpp tells no context of {self._server.options.path}") from exc

    async def aclose(self) -> None:
        """Close the connections, then the server, also for the other agents that share it."""
        await super().aclose()
        await self._server.aclose()


def local_options(table: Mapping[str, Any], *, home: Path, where: str) -> LocalOptions:
    """The ``[model]`` table of an agent of that kind, its path absolute.

    Args: home: what a relative path starts from.  where: the agent's file, for errors.
    Raises: ConfigError: a key cannot be used, the file is no GGUF file, or the extra is not installed.
    """
    try:
        options = msgspec.convert(table, LocalOptions)
    except msgspec.ValidationError as exc:
        why = misfit_in_toml(exc, LocalOptions, key="model", value=dict(table))
        raise ConfigError(where, key=f"model{why.path}", found=seen(why, dict(table)), expected=why.expected) from exc
    require_library(where, key="model.kind")
    file = gguf_file(options.path, start=home, where=where, key="model.path")
    return msgspec.structs.replace(options, path=str(file))


def require_library(where: str, *, key: str) -> None:
    """Raises: ConfigError: the extra is not installed."""
    if importlib.util.find_spec(LIBRARY) is None:
        expected = "the extra 'local', in a checkout: make .venv/.local"
        raise ConfigError(where, key=key, found="local", expected=expected)


def gguf_file(path: str, *, start: Path, where: str, key: str) -> Path:
    """The file, absolute. Args: start: of a relative path. Raises: ConfigError: it is no GGUF file that can be read."""
    file = (start / Path(path).expanduser()).absolute()
    try:
        with file.open("rb") as opened:
            begins = opened.read(len(_MAGIC))
    except OSError as exc:
        expected = f"a GGUF file that can be read ({(exc.strerror or 'unreadable').lower()})"
        raise ConfigError(where, key=key, found=path, expected=expected) from exc
    if begins != _MAGIC:
        raise ConfigError(where, key=key, found=path, expected="a GGUF file, which begins with these four letters")
    return file


def free_cores(*, cores: int, load: float) -> int:
    """How many cores have nothing to do, at least one. Args: load: tasks that ran or waited to run, on average."""
    return max(1, cores - round(load))


def _cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _load_average() -> float:
    try:
        return os.getloadavg()[0]
    except OSError:  # not told
        return 0.0
