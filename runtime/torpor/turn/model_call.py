"""One model call: the request goes out, deltas go to whoever watches, the reply or its failure comes back.

In a turn's first attempt the call overlaps with the commit of its own request, since asking changes nothing in the
world; what it says is held back until that commit is durable.
"""

from collections.abc import Awaitable, Callable, Mapping

import anyio
import msgspec

from torpor.conversation.graphemes import open_tail
from torpor.conversation.publish import text_of
from torpor.conversation.text import clean
from torpor.conversation.view import View
from torpor.model.contract import Model, ModelReply, ModelRequest
from torpor.provider_errors import ModelTimedOut, ProviderError
from torpor.records.blocks import Block, head_of, text_block
from torpor.records.events import Delta
from torpor.turn.places import Share
from torpor.turn.storable import THOUGHTS, is_blank, is_unsigned, storable


class ReplySoFar:
    """Implements ``model.contract.ReplySink``: what was said, and the deltas that clients may already see.

    A delta never ends within a character as people see it: the last one is kept back until more text or the end of
    its block tells that it is complete.
    """

    __slots__ = ("_blocks", "_call", "_is_open", "_offset", "_pieces", "_publish", "_unseen")

    def __init__(self, call: str, *, publish: Callable[[Delta], None]) -> None:
        self._call = call
        self._publish = publish
        self._blocks: list[Block] = []
        self._pieces: list[str] = []
        """All text of the block that is being written."""
        self._unseen: list[str] = []
        """Text of this block and those before it that nobody has been shown."""
        self._offset = 0
        self._is_open = False

    def text(self, piece: str) -> None:
        piece = clean(piece).text
        self._pieces.append(piece)
        self._unseen.append(piece)
        if self._is_open:
            self._show()

    def block(self, block: Block) -> None:
        self._blocks.append(block)
        self._pieces.clear()
        if self._is_open:
            self._show()

    @property
    def has_shown(self) -> bool:
        """Whether anybody may have read a part of it."""
        return self._offset > 0

    def release(self) -> None:
        """The request is durable: what was held back and what follows may be seen."""
        self._is_open = True
        self._show()

    def partial(self) -> tuple[Block, ...]:
        """What is worth keeping of a reply that was cut: finished text and thinking, and the text so far.

        Calls are left out, since nothing will answer them, what the API would refuse, and everything when no text was
        said at all.
        """
        heads = ((block, head_of(block)) for block in self._blocks)
        kept = [
            block
            for block, head in heads
            if (head.type == "text" and not is_blank(head)) or (head.type in THOUGHTS and not is_unsigned(head))
        ]
        if (rest := "".join(self._pieces)).strip():
            kept.append(text_block(rest))
        return tuple(kept) if text_of(kept).strip() else ()

    def _show(self) -> None:
        """Publish what nobody has seen, but for a character that may not be complete while its block is not."""
        text = "".join(self._unseen)
        end = open_tail(text) if self._pieces else len(text)
        if end:
            self._unseen = [text[end:]] if end < len(text) else []
            self._publish(Delta(call=self._call, offset=self._offset, text=text[:end]))
            self._offset += end


class ModelCall:
    """Performs one call; a turn's cancellation cancels it from outside."""

    def __init__(
        self,
        request: ModelRequest,
        *,
        sink: ReplySoFar,
        places: Share,
        deadline_s: float,
        asks: Callable[[], None] = lambda: None,
        attached: Callable[[View], Awaitable[Mapping[str, bytes]]] | None = None,
    ) -> None:
        """Args: asks: is told when there is a place, and the model is asked.  attached: reads the files that the
        request holds, once there is a place, since they are large."""
        self._request = request
        self._sink = sink
        self._places = places
        self._deadline_s = deadline_s
        self._asks = asks
        self._attached = attached

    async def answer(self, model: Model) -> ModelReply | ProviderError:
        """Wait for a free place and ask; the host's faults come back as values."""
        async with self._places:
            self._asks()
            try:
                with anyio.move_on_after(self._deadline_s):
                    return storable(await self._replied(model), call=self._request.call)
                return ModelTimedOut(f"no complete reply within {self._deadline_s:g} s")
            except ProviderError as exc:
                return exc

    async def _replied(self, model: Model) -> ModelReply:
        if self._attached is None:
            return await model.reply(self._request, self._sink)
        attached = await self._attached(self._request.view)
        return await model.reply(msgspec.structs.replace(self._request, attached=attached), self._sink)
