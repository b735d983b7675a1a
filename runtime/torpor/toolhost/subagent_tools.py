"""The tools that stand for sub-agents: to the model, having one work is a call like any other.

They know nothing of how a sub-agent lives: that is behind ``contract.Spawner``, which comes with each call.
"""

from typing import Annotated, Any, Final

import msgspec

from torpor.conversation.text import is_blank
from torpor.errors import ToolInputInvalid, ToolRefused
from torpor.toolhost.contract import ToolContext
from torpor.toolhost.declare import Tool, tool

_GRACE_S: Final = 10.0
"""For the end of a sub-agent whose own time is over, before its call's is."""
_RESULT_CAP_BYTES: Final = 24_576
"""More than any result type tells, since a part of an answer is none."""
Task = Annotated[str, msgspec.Meta(min_length=1, max_length=20_000)]


def subagent_tool(name: str, *, description: str, seconds: float) -> Tool[..., Any]:
    """The tool of the sub-agent ``name``. Args: seconds: that it may take."""

    async def spawn(context: ToolContext, task: Task) -> str:
        if context.spawner is None:
            raise ToolRefused("no sub-agent can be started here")
        if is_blank(task):
            raise ToolInputInvalid("task is blank, expected what is to be done")
        return await context.spawner.spawn(name, task)

    spawn.__doc__ = f"""{description}

    Args:
        task: What it is to do, with everything that it needs to know: it sees nothing of this conversation.
    """
    made = tool(name=name, effect="read", deadline_s=seconds + _GRACE_S, result_cap_bytes=_RESULT_CAP_BYTES)(spawn)
    made.gate = f"subagent.{name}"
    return made
