"""Models that work beside a turn's own: how they are presented, heard and judged alike.

Above: the fold of history and the live context, each of which knows what it asks and what an answer is good for.
"""

from collections.abc import Collection

from torpor.conversation.publish import text_of
from torpor.conversation.view import Preamble, preamble_of
from torpor.model.contract import ModelReply
from torpor.records.blocks import Block, head_of


def side_preamble(name: str, *, prompt: str, max_tokens: int) -> Preamble:
    """What stands before a question to the model ``name``: no tools, and ``prompt`` alone as its system prompt."""
    system = [{"type": "text", "text": prompt}]
    return preamble_of({"model": name, "max_tokens": max_tokens, "system": system})


def finished_text(reply: ModelReply, *, who: str, enough: Collection[str], error: type[ValueError]) -> str:
    """The text of a reply that stopped for one of the reasons ``enough`` and calls nothing.

    Args: who: the model, as the error calls it.
    Raises: error: the reply is no finished text.
    """
    if reply.stop_reason not in enough:
        raise error(f"{who} stopped for {reply.stop_reason!r}")
    if any(head_of(block).type == "tool_use" for block in reply.blocks):
        raise error(f"{who} called a tool")
    return text_of(reply.blocks)


class Unheard:
    """Implements ``model.contract.ReplySink``: nobody watches the reply being written."""

    def text(self, piece: str) -> None:
        del piece

    def block(self, block: Block) -> None:
        del block
