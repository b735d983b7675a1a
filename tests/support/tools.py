"""What tests of tools share: a caller, blobs in a dict, and one call in a line."""

import hashlib
from collections.abc import Callable
from typing import Any

import anyio
import msgspec

from torpor.errors import StoreError
from torpor.records.ids import CallId, ConversationKey
from torpor.toolhost.contract import AT_ONCE, Onset, ToolContext, ToolResult
from torpor.toolhost.declare import Tool
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.process import NotStarted
from torpor.toolhost.registry import ToolRegistry

ADA = ConversationKey("clinic", "ada", "c1")


class DictBlobs:
    """Implements ``store.contract.Blobs``; ``failing`` is raised by every put."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str, str], bytes] = {}
        self.failing: Exception | None = None

    async def put(self, key: ConversationKey, data: bytes) -> str:
        if self.failing is not None:
            raise self.failing
        handle = hashlib.sha256(data).hexdigest()
        self.kept[key.tenant, key.owner, handle] = data
        return handle

    async def get(self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None) -> bytes | None:
        data = self.kept.get((key.tenant, key.owner, handle))
        if data is None:
            return None
        return data[offset:] if size is None else data[offset : offset + size]


class TurnThatEnds:
    """Implements ``toolhost.contract.Onset`` for a turn that ends while its calls wait."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waits = anyio.Event()

    def wait(self) -> None:
        self.asked.append("wait")
        self.waits.set()

    def begin(self) -> None:
        self.asked.append("begin")
        raise NotStarted("the turn ends, nothing was done")


def a_context(
    key: ConversationKey = ADA,
    *,
    idempotency_key: str = "key-1",
    report: Callable[[str], None] = lambda _: None,
    onset: Onset = AT_ONCE,
) -> ToolContext:
    """A call made for ``key``."""
    return ToolContext(
        key=key,
        principal=key.owner,
        turn=1,
        call_id=CallId("toolu_1"),
        idempotency_key=idempotency_key,
        report=report,
        onset=onset,
    )


def a_registry(*tools: Tool[..., Any], blobs: DictBlobs | None = None, **options: Any) -> ToolRegistry:
    """The engine's defaults but for ``options``."""
    return ToolRegistry(tools, blobs=blobs or DictBlobs(), options=ToolOptions(**options))


async def called(
    tool: Tool[..., Any],
    arguments: object = None,
    *,
    context: ToolContext | None = None,
    blobs: DictBlobs | None = None,
    **options: Any,
) -> ToolResult:
    """Call ``tool`` as the turn does, with these arguments encoded as JSON."""
    registry = a_registry(tool, blobs=blobs, **options)
    raw = arguments if isinstance(arguments, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(arguments or {}))
    async with registry.running():
        try:
            return await registry.toolbox().call(tool.name, raw, context or a_context())
        except StoreError as exc:
            failure = exc
    raise failure
