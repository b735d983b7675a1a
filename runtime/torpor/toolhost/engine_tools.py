"""Tools of the engine itself: reading on in long results for every agent, skills for those that have any, earlier turns
where some were folded."""

import re
from typing import Annotated, Any, Final

import msgspec

from torpor.conversation.earlier import READ_EARLIER
from torpor.errors import ToolFailed
from torpor.store.contract import Blobs
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.earlier_tool import earlier_tool
from torpor.toolhost.options import ToolOptions
from torpor.toolhost.results import page
from torpor.toolhost.skill_tools import LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS, skill_tools

READ_RESULT: Final = "read_result"
ENGINE_TOOL_NAMES: Final = frozenset({READ_RESULT, READ_EARLIER, LOAD_SKILL, READ_SKILL_FILE, SEARCH_SKILLS})
"""What no tool of a home may be called."""

ALWAYS_OFFERED: Final = frozenset({READ_RESULT})
"""No flag takes these away: a history with tool traffic cannot be sent without any tool."""

_HANDLE: Final = re.compile(r"[0-9a-f]{64}")
_HEADER_BYTES: Final = 128
"""Room for the line that says where a page stands."""
_OVERLAP_BYTES: Final = 4
"""Read beyond a page, to know whether there is more and to step over half a code point."""


def engine_tools(blobs: Blobs, *, options: ToolOptions) -> tuple[Tool[..., Any], ...]:
    """All of them; ``ENGINE_TOOL_NAMES`` are their names."""
    return (_read_result(blobs, options=options), earlier_tool(options=options), *skill_tools(options=options))


def _read_result(blobs: Blobs, *, options: ToolOptions) -> Tool[..., Any]:
    page_bytes = options.result_cap_bytes - _HEADER_BYTES

    @tool(name=READ_RESULT, effect="read", deadline_s=options.blob_deadline_s)
    async def read_result(
        context: ToolContext,
        handle: str,
        offset: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0,
        size: Annotated[int, msgspec.Meta(ge=4)] = page_bytes,
    ) -> str:
        """Read on in a tool result that was too long to be shown whole.

        Args:
            handle: As the shortened result names it.
            offset: Where to begin, in bytes.
            size: How much to read, in bytes; less is given when it is more than one result can hold.
        """
        size = min(size, page_bytes)
        window = None
        if _HANDLE.fullmatch(handle):
            window = await blobs.get(context.key, handle, offset=offset, size=size + _OVERLAP_BYTES)
        if window is None:
            raise ToolFailed(f"no result {handle!r} is kept here, expected a handle that a shortened result named")
        start, text = page(window, size_bytes=size)
        begin, end = offset + start, offset + start + len(text)
        if not text:
            raise ToolFailed(f"the result ends before byte {offset}, expected a smaller offset")
        rest = f"continue with offset={end}" if len(window) > start + len(text) else "the end"
        return f"[bytes {begin} to {end}, {rest}]\n{text.decode()}"

    return read_result
