"""The seam between the turn loop and whatever writes the replies.

The turn loop hands over a request whose every byte comes from records; the adapter streams what it hears into a sink
and returns the whole reply. Blocks are the Messages API's own. Adapters raise ``ProviderError`` for the host's faults
and let cancellation through at once.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from torpor.conversation.view import Preamble, View
from torpor.records.blocks import Block
from torpor.records.terms import Usage


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, held as references until the adapter needs bytes."""

    call: str
    preamble: Preamble
    view: View
    model: str = ""
    """Asked instead of the preamble's model; empty for that one."""
    live: Block | None = None
    """The live context: a system block behind those of the preamble."""
    attached: Mapping[str, bytes] = {}
    """What the markers in the view stand for, by name of the blob."""
    lasting: tuple[int, ...] = ()
    """Where in the view what is for one turn alone begins, as the size of what stands before it: for the turn before,
    where it stood there, and for this one. A host that caches prefixes finds them again there."""


class ModelReply(msgspec.Struct, frozen=True, kw_only=True):
    """A complete reply."""

    blocks: tuple[Block, ...]
    """May be empty. A tool call whose input is not an object is answered by the turn loop and never run."""
    stop_reason: str
    usage: Usage = Usage()
    model: str = ""
    request_id: str = ""
    unusable: Mapping[int, str] = {}
    """Why calls cannot be run, by their place in ``blocks``: ids may be missing or given twice."""
    dropped: tuple[str, ...] = ()
    """Types of blocks that no later request could repeat and that were left out."""


class ReplySink(Protocol):
    """Takes the reply while it is being written; never waits."""

    def text(self, piece: str) -> None:
        """The next piece of the text block being written."""
        ...

    def block(self, block: Block) -> None:
        """A block is complete; a text block replaces the pieces it was announced by."""
        ...


class Model(Protocol):
    """A host of one or more models."""

    def request_fields(self) -> Mapping[str, Any]:
        """Fields of every request that this host's options ask for, such as ``thinking``; part of the preamble."""
        ...

    async def warm(self) -> None:
        """Be ready to ask; ``reply`` waits for it as well. Raises: ProviderError: it never will be."""
        ...

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        """Ask once. Raises: ProviderError: the host gave no complete reply; the sink holds what came."""
        ...
