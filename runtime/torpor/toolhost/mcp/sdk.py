"""The MCP SDK behind ``session.Session``; imported late, since that takes seconds. Nothing above it knows the SDK.

A client is entered and left by the task that owns the connection. All that comes from the server passes ``_Incoming``
first: it notices the end of a connection at once, keeps one bad tool from spoiling the whole list, and ends a
connection that sends nonsense.
"""

import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import anyio
import httpx2
import jsonschema  # noqa: F401 - which the SDK would import in the middle of a call
import mcp_types as types
import pydantic
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.message import SessionMessage
from mcp_types.methods import validate_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from torpor.toolhost.mcp.bodies import bound
from torpor.toolhost.mcp.faults import Refusal, Statuses, is_session_gone, why_unreachable
from torpor.toolhost.mcp.lines import TooLong, Unreadable
from torpor.toolhost.mcp.listing import BEYOND, LISTED_MAX
from torpor.toolhost.mcp.program import program_streams
from torpor.toolhost.mcp.results import Answer
from torpor.toolhost.mcp.session import ConnectionLost, NotSent, Opening, ServerError, Session, Unreachable
from torpor.toolhost.mcp.unsent import Caller
from torpor.toolhost.mcp.values import secrets_of
from torpor.toolhost.process import NotStarted

_RAW: Final = "torpor/raw"
"""Where a stand-in holds what a server says of a tool, or a block of its answer, that the SDK would not take."""
_BLOCK: Final = pydantic.TypeAdapter[Any](types.ContentBlock)
_BLOCKS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_NONSENSE_MAX: Final = 100
"""Messages of one connection that are none."""
_CLOSED: Final = -32_000
"""What the SDK says of a connection that is gone, and a server may of anything."""
_LOST_BY_SDK: Final = "SSE stream"
"""So begins what the SDK says, in the place of a server, where a stream of events ended without an answer."""
_SAID: Final = object()
"""Marks an error of that number which is the server's, where nothing else does."""
_NO_ANSWERS: Final = (
    "Server returned an error response",
    "Unexpected content type",
    "server answered a request with 202",
)
"""As the SDK tells of an error of HTTP that says no more, of a page, and of nothing."""
_HTTP_DEADLINE_S: Final = 30.0
_READ_DEADLINE_S: Final = 600.0
"""Between two pieces of a stream that is kept open; calls have deadlines of their own."""
_SAID_CHARS: Final = 500

# It writes lines that servers send into the log of the process.
logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)


@asynccontextmanager
async def open_session(opening: Opening) -> AsyncIterator[Session]:
    """See ``session.Open``."""
    async with AsyncExitStack() as stack:
        statuses = Statuses()
        transport = _watched(await _transport(opening, stack, statuses), opening, statuses)
        heard = _Heard(opening.changed)
        client = Client(transport, cache=None, message_handler=heard)
        try:
            await stack.enter_async_context(client)
        except (MCPError, ExceptionGroup) as exc:
            why = why_unreachable(exc, statuses)
            if not why:
                raise
            raise Unreachable(why) from exc
        statuses.is_open = True
        yield _SdkSession(client, opening)


async def _transport(opening: Opening, stack: AsyncExitStack, statuses: Statuses) -> Any:
    server = opening.server
    if server.command:

        def died(how: str, printed: str) -> None:
            opening.printed(printed)
            opening.ended(how)

        return program_streams(
            (server.command, *server.args),
            env=opening.env,
            secrets=secrets_of(server.env, opening.env),
            cwd=opening.cwd,
            shows_errors=opening.shows_errors,
            line_bytes_max=opening.message_bytes_max,
            died=died,
        )
    client = Caller(
        statuses=statuses,
        headers={"Accept-Encoding": "identity", **opening.headers},
        timeout=httpx2.Timeout(_HTTP_DEADLINE_S, read=_READ_DEADLINE_S),
        event_hooks={"response": [partial(bound, most=opening.message_bytes_max), statuses.heed]},
    )
    http = await stack.enter_async_context(client)
    return streamable_http_client(server.url, http_client=http, max_sse_event_size=opening.message_bytes_max)


@asynccontextmanager
async def _watched(transport: Any, opening: Opening, statuses: Statuses) -> AsyncIterator[Any]:
    async with transport as (incoming, outgoing):
        yield _Incoming(incoming, opening, statuses), outgoing


class _Incoming:
    """A stream of messages that looks at each of them."""

    def __init__(self, stream: Any, opening: Opening, statuses: Statuses) -> None:
        self._stream = stream
        self._statuses = statuses
        self._ended = opening.ended
        named = opening.server
        self._wanted = {*named.tools, *named.reads, *named.deadlines_s} if named.tools else frozenset[str]()
        self._nonsense = 0

    @property
    def last_context(self) -> Any:
        """As the SDK's own streams have it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        """Raises: EndOfStream, ClosedResourceError."""
        try:
            item = await self._stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended("it closed the connection")
            raise
        if isinstance(item, SessionMessage):
            _replace_bad_tools(item, self._wanted)
            _replace_bad_parts(item)
            _mark_what_it_said(item, self._statuses)
            if isinstance(item.message, types.JSONRPCError) and isinstance(item.message.error.data, Unreadable):
                self._count_nonsense()
        elif isinstance(item, TooLong):
            self._ended(f"it sent {item}")
        else:
            self._count_nonsense()
        message: SessionMessage | Exception = item
        return message

    def _count_nonsense(self) -> None:
        self._nonsense += 1
        if self._nonsense >= _NONSENSE_MAX:
            self._ended("it sends what is no message")

    async def aclose(self) -> None:
        await self._stream.aclose()

    def close(self) -> None:
        self._stream.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _replace_bad_tools(item: SessionMessage, wanted: Collection[str]) -> None:
    """The SDK refuses a whole list for one tool; whoever reads the list finds the tool in its stand-in.

    Args: wanted: the only tools that anybody speaks of; empty for all.
    """
    message = item.message
    if not isinstance(message, types.JSONRPCResponse) or not isinstance(told := message.result.get("tools"), list):
        return
    if wanted:
        told = [tool for tool in told if not isinstance(tool, dict) or tool.get("name") in wanted]
    is_beyond, told = len(told) > LISTED_MAX, told[:LISTED_MAX]
    # By which the SDK would judge each answer, in the loop that serves everybody, and with the words of the answer.
    for tool in told:
        if isinstance(tool, dict):
            tool.pop("outputSchema", None)
    versions = [version for version in KNOWN_PROTOCOL_VERSIONS if _is_taken(message.result, [], version)]
    message.result["tools"] = [
        tool if all(_is_taken(message.result, [tool], version) for version in versions) else _stand_in(tool, index)
        for index, tool in enumerate(told)
    ]
    if is_beyond:
        message.result["tools"].append(_stand_in(BEYOND, LISTED_MAX))


def _replace_bad_parts(item: SessionMessage) -> None:
    """The SDK refuses a whole answer for one block that it does not know, after which a write would be unknown."""
    message = item.message
    if not isinstance(message, types.JSONRPCResponse) or not isinstance(told := message.result.get("content"), list):
        return
    if not isinstance(message.result.get("_meta", {}), dict):
        del message.result["_meta"]
    structured = message.result.get("structuredContent")
    if structured is not None and not isinstance(structured, dict):
        message.result["structuredContent"] = {"result": structured}
    if not all(map(_is_plain, told)):
        message.result["content"] = [block if _is_plain(block) or _is_block(block) else _note(block) for block in told]


def _is_plain(block: Any) -> bool:
    """As nearly all are."""
    is_text = isinstance(block, dict) and len(block) == 2 and block.get("type") == "text"
    return is_text and isinstance(block.get("text"), str)


def _is_block(block: Any) -> bool:
    """In every version of the protocol that has such blocks."""
    if not isinstance(block, dict) or block.get("type") not in _BLOCKS:
        return False
    try:
        _BLOCK.validate_python(block, by_name=False)
    except (pydantic.ValidationError, RecursionError):
        return False
    return True


def _note(block: Any) -> dict[str, Any]:
    return {"type": "text", "text": "", "_meta": {_RAW: [block if isinstance(block, dict) else {}]}}


def _mark_what_it_said(item: SessionMessage, statuses: Statuses) -> None:
    """Errors hold how their request was answered, and whose they are; what else is in their data nobody reads."""
    message = item.message
    if not isinstance(message, types.JSONRPCError) or isinstance(message.error.data, Unreadable):
        return
    error, refusal = message.error, statuses.refusal(message.id)
    is_said = error.code == _CLOSED and not error.message.startswith(_LOST_BY_SDK)
    error.data = refusal or (_SAID if is_said else None)


def _is_taken(result: Mapping[str, Any], tools: list[Any], version: str) -> bool:
    """By the SDK, if ``result`` had these tools."""
    try:
        validate_server_result("tools/list", version, {**result, "tools": tools})
    except (KeyError, pydantic.ValidationError, RecursionError):
        return False
    return True


def _stand_in(tool: Any, index: int) -> dict[str, Any]:
    return {"name": f"unusable-{index}", "inputSchema": {"type": "object"}, "_meta": {_RAW: [tool]}}


class _Heard:
    """What comes unasked, on connections of the older kind."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed

    async def __call__(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._changed()


class _SdkSession:
    """Implements ``session.Session``."""

    def __init__(self, client: Client, opening: Opening) -> None:
        self._client = client
        self._opening = opening

    async def tools(self) -> tuple[object, ...]:
        told, cursor = list[object](), None
        for _ in range(self._opening.pages_max):
            with _Translated(self._opening):
                page = await self._client.list_tools(cursor=cursor)
            told += map(_as_told, page.tools)
            cursor = page.next_cursor
            if not cursor or len(told) > LISTED_MAX:
                break
        return (*told[:LISTED_MAX], BEYOND) if len(told) > LISTED_MAX else tuple(told)

    async def call(self, tool: str, arguments: Mapping[str, Any], *, report: Callable[[str], None]) -> Answer:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            of = f" of {total:g}" if total else ""
            report(f"{progress:g}{of}{f': {message}' if message else ''}")

        with _Translated(self._opening):
            result = await self._client.call_tool(tool, dict(arguments), progress_callback=progressed)
        content = tuple(map(_as_block, result.content))
        return Answer(content=content, structured=result.structured_content, is_error=bool(result.is_error))

    async def heed_changes(self) -> None:
        try:
            async with self._client.listen(tools_list_changed=True) as subscription:
                async for _ in subscription:
                    self._opening.changed()
        except SubscriptionLost:
            self._opening.changed()  # nothing of what was missed comes again
        except (ListenNotSupportedError, MCPError, TimeoutError):
            return


class _Translated(nullcontext[None]):
    """Errors of the SDK become ours, without the words of a validator, which hold what was sent.

    The SDK makes errors of the protocol out of what is HTTP and no answer: nobody knows then what came of a call.
    """

    def __init__(self, opening: Opening) -> None:
        super().__init__()
        self._opening = opening

    def __exit__(self, *raised: Any) -> None:
        exc = raised[1]
        refusal = exc.data if isinstance(exc, MCPError) and isinstance(exc.data, Refusal) else None
        match exc:
            case MCPError() if isinstance(exc.data, Unreadable):
                raise ConnectionLost(f"its server answered what is no answer: {exc.data.why}") from exc
            case MCPError() if exc.code == _CLOSED and exc.data is not _SAID and refusal is None:
                raise ConnectionLost("the connection to its server ended") from exc
            case MCPError() if refusal is not None and refusal.unsent:
                raise NotSent(refusal.unsent) from exc
            case MCPError() if refusal is not None and refusal.is_of_whoever_asks:
                self._opening.stale(
                    f"it answered HTTP {refusal.status}"
                )  # the next one has the credential as it is then
                fact = f"its server did not accept who asks (HTTP {refusal.status})"
                raise NotStarted(f"{fact}; nothing was done, try again later, or have its operator look") from exc
            case MCPError() if refusal is not None and 300 <= refusal.status < 400:
                fact = f"its server sends on to {refusal.host or 'another path'}, which is not followed"
                raise ServerError(f"{fact} (HTTP {refusal.status})", number=exc.code) from exc
            case MCPError() if is_session_gone(exc, refusal):
                self._opening.ended("its session has ended")
                raise NotStarted("its server has forgotten the session; nothing was done, call it again") from exc
            case MCPError() if exc.code == types.PARSE_ERROR or str(exc.message).startswith(_NO_ANSWERS):
                raise ConnectionLost("its server answered what is no answer") from exc
            case MCPError():
                said = str(exc.message)[:_SAID_CHARS]
                raise ServerError(f"its server refused: {said} (error {exc.code})", number=exc.code) from exc
            case pydantic.ValidationError():
                raise ConnectionLost("its server answered what is no answer") from exc
            case anyio.BrokenResourceError() | anyio.ClosedResourceError():
                raise ConnectionLost("the connection to its server ended") from exc


def _as_block(block: types.ContentBlock) -> Mapping[str, Any]:
    if block.meta and isinstance(raw := block.meta.get(_RAW), list) and raw and isinstance(raw[0], dict):
        return raw[0]
    if isinstance(block, types.TextContent):  # nearly all are, and a dump costs more than the rest of a call's answer
        return {"type": "text", "text": block.text}
    return block.model_dump(mode="json", by_alias=True, exclude_none=True)


def _as_told(tool: types.Tool) -> object:
    if tool.meta and isinstance(raw := tool.meta.get(_RAW), list) and raw:
        return raw[0]
    return tool.model_dump(mode="json", by_alias=True, exclude_none=True)
