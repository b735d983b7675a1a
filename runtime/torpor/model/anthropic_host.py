"""Any host that speaks the Messages API, through the ``anthropic`` SDK.

The SDK is imported when it is first needed, in a thread, since that takes seconds; ``warm`` does it in the background.
Its retries are off: the turn loop retries, where that is on record, visible and cancellable. It carries the connection;
the body is taken as bytes, its events are found by ``event_stream``, and what they mean is decided by ``assemble``.

A stream must make progress: pings keep a dead one alive for ever, so only other events push its deadline back.

Whatever a host does ends here as a reply or as a ``ProviderError`` whose text anybody may read.
"""

import importlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
import msgspec
import structlog

from torpor.clock import Clock
from torpor.model.anthropic_edge import UNREADABLE, faults_translated
from torpor.model.anthropic_faults import fault_of
from torpor.model.anthropic_options import AnthropicOptions, fallback_first, request_fields
from torpor.model.anthropic_wire import WireRequests
from torpor.model.assemble import Assembler, ErrorTold
from torpor.model.circuit import Circuit
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.model.error_body import bound_error
from torpor.model.event_stream import EventSplitter, ServerEvent
from torpor.model.part import NAME_CHARS_MAX, WORD_CHARS_MAX
from torpor.model.wording import Wording, secrets_of_url
from torpor.provider_errors import ModelUnknown, ProviderError, ProviderUnavailable, StreamLost

_log = structlog.get_logger()
_CLOSE_S: Final = 1.0
"""To end a connection, in good order or not."""
_SLACK: Final = 0.01
"""How much of a deadline may be lost by not moving it with every event."""
_REPLY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of a whole stream, decompressed; a reply without end must not fill the memory."""
_TOLD_BYTES_MAX: Final = 1024 * 1024
"""Of what a host tells about a model."""


class AnthropicHost:
    """Implements ``model.contract.Model``."""

    def __init__(self, options: AnthropicOptions, *, key: str, circuit: Circuit, clock: Clock) -> None:
        self.options = options
        self._key = key
        self._circuit = circuit
        self._clock = clock
        self._wire = WireRequests(cache_ttl=options.cache_ttl)
        self._wording = Wording(secrets=(key, *secrets_of_url(options.base_url), *secrets_of_url(options.proxy)))
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
        assembler = Assembler(sink)
        try:
            reply = await self._asked(request, assembler)
        except ProviderError as exc:
            is_lost = isinstance(exc, StreamLost)
            if exc.is_of_host or (is_lost and not assembler.has_begun):
                self._circuit.failed()
            elif not is_lost:  # what began well says nothing of the next call
                self._circuit.succeeded()
            raise
        return self._worded_reply(reply)

    async def window_tokens(self) -> int | None:
        """The model's context window as the host tells it; None when it does not serve that. Raises: ProviderError."""
        await self.warm()
        try:
            with self._faults_translated(self.options.model):
                told = await self._told_of_model()
        except ModelUnknown:  # or a host that only resembles the API; ``probe`` tells
            return None
        tokens = told.get("max_input_tokens") if isinstance(told, dict) else None
        return tokens if isinstance(tokens, int) and tokens > 0 else None

    async def probe(self) -> None:
        """One call that costs next to nothing. Raises: ProviderError: what stands in the way of real ones."""
        await self.warm()
        message = {"role": "user", "content": "ping"}
        with self._faults_translated(self.options.model):
            stream = await self._client.messages.create(
                model=self.options.model,
                max_tokens=1,
                messages=[message],
                timeout=self.options.progress_deadline_s,
                stream=True,
            )
            await stream.response.aclose()  # that it answers is enough

    async def _told_of_model(self) -> object:
        stream = await self._client.get(
            f"/v1/models/{quote(self.options.model, safe='')}",
            cast_to=object,
            stream=True,
            stream_cls=self._sdk.AsyncStream[object],
        )
        told = b""
        try:
            with anyio.fail_after(self.options.progress_deadline_s):
                async with aclosing(stream.response.aiter_bytes()) as reads:
                    async for read in reads:
                        told += read
                        if len(told) > _TOLD_BYTES_MAX:
                            raise StreamLost(f"what the host tells of the model is longer than {_TOLD_BYTES_MAX} bytes")
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await stream.response.aclose()
        return msgspec.json.decode(told)

    async def _asked(self, request: ModelRequest, assembler: Assembler) -> ModelReply:
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
                    attached=request.attached,
                ),
                options={"headers": {"content-type": "application/json"}},
                stream=True,
                stream_cls=self._sdk.AsyncStream[object],
            )
            try:
                return await self._read(stream.response, assembler, model=model)
            finally:
                assembler.break_off()

    async def _read(self, response: Any, assembler: Assembler, *, model: str) -> ModelReply:
        """Read the stream to its end, and close it whatever happens."""
        splitter, deadline_s, size_bytes = EventSplitter(), self.options.progress_deadline_s, 0
        try:
            with anyio.fail_after(deadline_s) as scope:
                async with aclosing(response.aiter_bytes()) as reads:
                    async for read in reads:
                        if (size_bytes := size_bytes + len(read)) > _REPLY_BYTES_MAX:
                            raise StreamLost(f"the stream is longer than {_REPLY_BYTES_MAX} bytes")
                        if not self._take(splitter.take(read), assembler, model=model):
                            continue
                        self._circuit.succeeded()
                        # The rest is read so that the connection can serve another call, if it comes soon.
                        allowed_s = _CLOSE_S if assembler.is_over else deadline_s
                        # To move a timer costs more than to read an event; so it is moved when it is worth it.
                        if abs((now_s := anyio.current_time()) + allowed_s - scope.deadline) > _SLACK * allowed_s:
                            scope.deadline = now_s + allowed_s
        except (TimeoutError, StreamLost, importlib.import_module("httpx2").HTTPError, *UNREADABLE):
            if not assembler.is_over:  # what goes wrong behind a whole reply is no matter
                raise
        finally:
            with anyio.move_on_after(_CLOSE_S, shield=True):
                await response.aclose()
        if not assembler.has_begun:
            what = response.headers.get("content-type") or "something"
            raise StreamLost(f"{self.options.base_url} answered {what}, and no reply in it")
        return assembler.reply(request_id=response.headers.get("request-id", ""))

    def _take(self, events: Sequence[ServerEvent], assembler: Assembler, *, model: str) -> bool:
        """The events of one read; whether any is progress. What they say is handed on even if one is a fault."""
        is_progress = False
        try:
            for event in events:
                if event.name == b"error" and not assembler.is_over:
                    raise ErrorTold(event.data)
                is_progress = assembler.take(event.data) or is_progress
        except ErrorTold as told:
            now_us = self._clock.now_us()
            raise fault_of(status=200, body=told.data, headers={}, model=model, now_us=now_us) from None
        finally:
            assembler.hand_on()
        return is_progress

    def _faults_translated(self, model: str) -> AbstractContextManager[None]:
        """Raises: ProviderError: in place of whatever the SDK and the libraries below it raise."""
        return faults_translated(self.options, model=model, sdk=self._sdk, wording=self._wording, clock=self._clock)

    def _worded_reply(self, reply: ModelReply) -> ModelReply:
        """What of it goes on record beside its blocks holds no key, either."""
        told = self._wording.told
        return msgspec.structs.replace(
            reply,
            stop_reason=told(reply.stop_reason, chars_max=WORD_CHARS_MAX),
            model=told(reply.model, chars_max=NAME_CHARS_MAX),
            request_id=told(reply.request_id, chars_max=NAME_CHARS_MAX),
            dropped=tuple(told(type_, chars_max=WORD_CHARS_MAX) for type_ in reply.dropped),
        )

    def _loaded(self) -> tuple[Any, Any]:
        """The SDK and a client; slow, in a thread."""
        sdk, httpx, options = importlib.import_module("anthropic"), importlib.import_module("httpx2"), self.options
        # A variable makes it log whole requests, and so what people wrote.
        logging.getLogger(sdk.__name__).setLevel(logging.WARNING)
        timeout = sdk.Timeout(options.progress_deadline_s, connect=options.connect_deadline_s)
        # Where there is no TLS, loading the certificates is a tenth of a second for nothing.
        has_tls = options.base_url.startswith("https://") or options.proxy.startswith("https://")
        client = sdk.AsyncAnthropic(
            api_key=self._key,
            base_url=options.base_url,
            max_retries=0,
            timeout=timeout,
            open_telemetry=False,  # spans of our own tell of a call, and a host need not know their names
            http_client=sdk.DefaultAsyncHttpxClient(
                proxy=options.proxy or None,
                trust_env=not _is_this_machine(options.base_url),
                verify=has_tls,
                follow_redirects=False,
                timeout=timeout,
                event_hooks={"response": [partial(bound_error, httpx=httpx)]},
            ),
        )
        return sdk, client

    def __repr__(self) -> str:
        return f"<AnthropicHost {self.options.base_url} model={self.options.model} {self._circuit!r}>"


def _is_this_machine(url: str) -> bool:
    """To a proxy that a variable names, the same address would be its own machine."""
    host = urlsplit(url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")
