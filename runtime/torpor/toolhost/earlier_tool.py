"""The engine tool that reads earlier turns; offered only where a part of the conversation was replaced by a summary.

It knows nothing of journals: all of that is behind ``contract.EarlierAccess``, which the turn hands over with each
call.
"""

from typing import Annotated, Any, Final

import msgspec

from torpor.conversation.earlier import READ_EARLIER
from torpor.errors import ToolFailed, ToolRefused
from torpor.toolhost.contract import EarlierBounds, ToolContext
from torpor.toolhost.declare import Tool, tool
from torpor.toolhost.options import ToolOptions

Number = Annotated[int, msgspec.Meta(ge=0)]
_SLACK_S: Final = 5.0
"""Between the look and the end of the call, which would tell nothing of what was found."""


def earlier_tool(*, options: ToolOptions) -> Tool[..., Any]:
    """``read_earlier``."""
    bounds = EarlierBounds(
        size_bytes=options.result_cap_bytes,
        records_max=options.earlier_records_max,
        deadline_s=options.earlier_deadline_s,
    )

    @tool(name=READ_EARLIER, effect="read", deadline_s=options.earlier_deadline_s + _SLACK_S)
    async def read_earlier(
        context: ToolContext,
        *,
        first_turn: Number = 0,
        last_turn: Number = 0,
        query: str = "",
        limit: Annotated[int, msgspec.Meta(ge=1, le=20)] = 5,
        offset: Number = 0,
    ) -> str:
        """Read earlier turns of this conversation word for word, or find those that were folded into the summary.

        Args:
            last_turn: The first one again where it is left out.
            query: Words that must all occur in one turn.
            limit: Turns that a query finds.
            offset: As a shortened answer says.
        """
        if context.earlier is None:
            raise ToolRefused("no earlier turns are kept here")
        if query.strip():
            return await context.earlier.search(
                query, first_turn=first_turn, last_turn=last_turn, limit=limit, bounds=bounds
            )
        if not first_turn:
            raise ToolFailed("nothing was asked for, expected first_turn or a query")
        return await context.earlier.read(
            first_turn=first_turn, last_turn=last_turn or first_turn, offset=offset, bounds=bounds
        )

    return read_earlier
