"""Any host that speaks the Messages API, through the ``anthropic`` SDK.

The SDK is imported when it is first needed, in a thread, since that takes seconds; ``warm`` does it in the background.
Its retries are off: the turn loop retries, where that is on record, visible and cancellable. It carries the connection;
the body is taken as bytes, its events are found by ``event_stream``, and what they mean is decided by ``assemble``.

A stream must make progress: pings keep a dead one alive for ever, so only other events push its deadline back.
"""

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import structlog

from torpor.clock import Clock
from torpor.errors import ModelUnknown, ProviderError, ProviderUnavailable, StreamLost
from torpor.model.anthropic_faults import fault_of
from torpor.model.anthropic_options import AnthropicOptions, fallback_first, request_fields
from torpor.model.anthropic_wire import WireRequests
from torpor.model.assemble import Assembler, ErrorTold
from torpor.model.circuit import Circuit
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.model.event_stream import EventSplitter, ServerEvent

_log = structlog.get_logger()
_CLOSE_S: Final = 1.0
"""To end a connection, in good order or not."""
_SLACK: Final = 0.01
"""How much of a deadline may be lost by not moving it with every event."""


class AnthropicHost:
    """Implements ``model.contract.Model``."""

    def __init__(self, options: AnthropicOptions, *, key: str, circuit: Circuit, clock: Clock) -> None:
        self.options = options
        self._key = key
        self._circuit = circuit
        self._clock = clock
        self._wire = WireRequests(cache_ttl=options.cache_ttl)
        self._loading = anyio.Lock()
        self._sdk: Any = None
        self._client: Any = None

    def request_fields(self) -> Mapping[str, Any]:
        """See the contract."""
        return request_fields(self.options)

    async def warm(self) -> None:
        """Import the SDK and make the client, unless that was done; the first call waits for it.

        Cancellation: at once; the import goes on in its thread.
        """
        async with self._loading:
            if self._client is None:
                self._sdk, self._client = await anyio.to_thread.run_sync(self._loaded, abandon_on_cancel=True)
                _log.debug("model.sdk_loaded", version=self._sdk.__version__)

    async def aclose(self) -> None:
        """Close the connections that are kept for later calls."""
        if self._client is not None:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await self._client.close()

    def of_fallback(self) -> "AnthropicHost":
        """A host that asks the fallback first; shares the circuit, not the connections."""
        options = fallback_first(self.options)
        return AnthropicHost(options, key=self._key, circuit=self._circuit, clock=self._clock)

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        """See the contract."""
        if (blocked_s := self._circuit.blocked_for_s()) > 0:
            text = f"{self.options.base_url} has failed too often, no call is let through for {blocked_s:.1f} s"
            raise ProviderUnavailable(text, retry_after_s=blocked_s)
        try:
            reply = await self._asked(request, sink)
        except ProviderError as exc:
            if exc.is_of_host:
                self._circuit.failed()
            elif not isinstance(exc, StreamLost):  # which says nothing of the next call
                self._circuit.succeeded()
            raise
        return reply

    async def window_tokens(self) -> int | None:
        """The model's context window as the host tells it; None when it does not serve that. Raises: ProviderError."""
        await self.warm()
        try:
            with self._faults_translated(self.options.model):
                model = await self._client.models.retrieve(self.options.model)
        except ModelUnknown:  # or a host that only resembles the API; ``probe`` tells
            return None
        return getattr(model, "max_input_tokens", None) or None

    async def probe(self) -> None:
        """One call that costs next to nothing. Raises: ProviderError: what stands in the way of real ones."""
        await self.warm()
        message = {"role": "user", "content": "ping"}
        with self._faults_translated(self.options.model):
            await self._client.messages.create(
                model=self.options.model, max_tokens=1, messages=[message], timeout=self.options.progress_deadline_s
            )

    async def _asked(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        await self.warm()
        model = request.model or self.options.model
        with self._faults_translated(model):
            stream = await self._client.post(
                "/v1/messages",
                cast_to=object,
                content=self._wire.body(
                    request.preamble,
                    request.view,
                    model=request.model,
                    live=request.live,
                    lasting=request.lasting,
                ),
                options={"headers": {"content-type": "application/json"}},
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
            return await self._read(stream.response, sink, model=model)

    async def _read(self, response: Any, sink: ReplySink, *, model: str) -> ModelReply:
        """Read the stream to its end, and close it whatever happens."""
        assembler, splitter, deadline_s = Assembler(sink), EventSplitter(), self.options.progress_deadline_s
        try:
            with anyio.fail_after(deadline_s) as scope:
                async with aclosing(response.aiter_bytes()) as reads:
                    async for read in reads:
                        if not self._take(splitter.take(read), assembler, model=model):
                            continue
                        self._circuit.succeeded()
                        # The rest is read so that the connection can serve another call, if it comes soon.
                        allowed_s = _CLOSE_S if assembler.is_over else deadline_s
                        # To move a timer costs more than to read an event; so it is moved when it is worth it.
                        if abs((now_s := anyio.current_time()) + allowed_s - scope.deadline) > _SLACK * allowed_s:
                            scope.deadline = now_s + allowed_s
        except (TimeoutError, importlib.import_module("httpx2").HTTPError):
            if not assembler.is_over:
                raise
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await response.aclose()
        return assembler.reply(request_id=response.headers.get("request-id", ""))

    def _take(self, events: Sequence[ServerEvent], assembler: Assembler, *, model: str) -> bool:
        """The events of one read; whether any is progress. What they say is handed on even if one is a fault."""
        is_progress = False
        try:
            for event in events:
                if event.name == b"error" and not assembler.is_over:
                    raise self._fault(200, _decoded(event.data), {}, model=model)
                is_progress = assembler.take(event.data) or is_progress
        except ErrorTold as told:
            raise self._fault(200, _decoded(told.data), {}, model=model) from None
        finally:
            assembler.hand_on()
        return is_progress

    @contextmanager
    def _faults_translated(self, model: str) -> Iterator[None]:
        """Raises: ProviderError: in place of whatever the SDK and the library below it raise."""
        sdk, httpx = self._sdk, importlib.import_module("httpx2")  # loaded with the SDK
        try:
            yield
        except sdk.APIStatusError as exc:
            raise self._fault(exc.status_code, exc.body, exc.response.headers, model=model) from exc
        except sdk.APIConnectionError as exc:
            raise ProviderUnavailable(f"{self.options.base_url} cannot be reached: {_root(exc)}") from exc
        except sdk.AnthropicError as exc:
            raise ProviderUnavailable(f"{self.options.base_url} answered something else: {exc}") from exc
        except httpx.HTTPError as exc:
            raise StreamLost(f"the stream broke: {_root(exc)}") from exc
        except TimeoutError as exc:
            raise StreamLost(f"no progress within {self.options.progress_deadline_s:g} s") from exc
        except ValueError as exc:  # of JSON and of UTF-8 alike
            raise StreamLost(f"the answer of {self.options.base_url} cannot be read: {exc}") from exc

    def _fault(self, status: int, body: object, headers: Any, *, model: str) -> ProviderError:
        return fault_of(status=status, body=body, headers=headers, model=model, now_us=self._clock.now_us())

    def _loaded(self) -> tuple[Any, Any]:
        """The SDK and a client; slow, in a thread."""
        sdk, options = importlib.import_module("anthropic"), self.options
        timeout = sdk.Timeout(options.progress_deadline_s, connect=options.connect_deadline_s)
        # Where there is no TLS, loading the certificates is a tenth of a second for nothing.
        has_tls = options.base_url.startswith("https://") or options.proxy.startswith("https://")
        client = sdk.AsyncAnthropic(
            api_key=self._key,
            base_url=options.base_url,
            max_retries=0,
            timeout=timeout,
            http_client=sdk.DefaultAsyncHttpxClient(
                proxy=options.proxy or None,
                trust_env=not _is_this_machine(options.base_url),
                verify=has_tls,
                follow_redirects=False,
                timeout=timeout,
            ),
        )
        return sdk, client

    def __repr__(self) -> str:
        return f"<AnthropicHost {self.options.base_url} model={self.options.model} {self._circuit!r}>"


def _is_this_machine(url: str) -> bool:
    """To a proxy that a variable names, the same address would be its own machine."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _root(exc: BaseException) -> str:
    """The innermost cause in words: the SDK's own say little more than that something failed."""
    while (cause := exc.__cause__ or exc.__context__) is not None:
        exc = cause
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__


def _decoded(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
