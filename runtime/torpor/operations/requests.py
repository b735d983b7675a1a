"""Records of a journal -> the requests that its turns made, each exactly as it was sent; pure.

One fold over the journal finds them all. A request is its preamble and its view, both of which the fold holds anyway;
its body is encoded only when somebody asks for it, so a long journal costs one pass.

Cache marks and ``stream`` belong to sending and are in no body.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from torpor.conversation.fold import fold
from torpor.conversation.state import ConversationState
from torpor.conversation.view import Preamble, View, request_body, request_fields
from torpor.records.blocks import Block
from torpor.records.journal import JournalRecord, ModelRequested

TURN: Final = "turn"
"""The purpose of the requests that a turn makes."""


class RebuiltRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request, from the journal alone."""

    record: ModelRequested
    """What announced it."""
    state: ConversationState
    """Once it was announced."""

    @property
    def seq(self) -> int:
        return self.record.seq

    @property
    def turn(self) -> int:
        return self.record.turn

    @property
    def call(self) -> str:
        return self.record.call

    @property
    def preamble(self) -> Preamble:
        return self.state.preamble

    @property
    def view(self) -> View:
        return self.state.view

    @property
    def live(self) -> Block | None:
        """The live context in it."""
        return self.state.turn.live if self.state.turn is not None else None

    def fields(self) -> dict[str, msgspec.Raw]:
        """Every field beside the messages."""
        return request_fields(self.preamble, model=self.record.model, live=self.live)

    def body(self) -> bytes:
        """Canonical JSON; costs a copy of the whole request."""
        return request_body(self.preamble, self.view, model=self.record.model, live=self.live)

    def digest(self) -> str:
        """sha256 of ``body``, hex."""
        return hashlib.sha256(self.body()).hexdigest()

    def __repr__(self) -> str:
        return f"<RebuiltRequest {self.call} of turn {self.turn} at record {self.seq}>"


def rebuilt(records: Iterable[JournalRecord]) -> Iterator[RebuiltRequest]:
    """The requests of turns in the order they were sent.

    Raises: BadHistory: a record cannot follow those before it, or names a request that they do not make.
    """
    state = ConversationState()
    for record in records:
        state = fold(state, (record,))
        if isinstance(record, ModelRequested) and record.purpose == TURN:
            yield RebuiltRequest(record=record, state=state)


class Chosen(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A request and the one before it."""

    request: RebuiltRequest
    previous: RebuiltRequest | None
    """None for the first of the conversation."""


def chosen(records: Iterable[JournalRecord], *, turn: int = 0, call: str = "") -> Chosen | None:
    """The last request of ``turn`` (0 for any) that ``call`` names (empty for any); None when there is none."""
    found, previous = None, None
    for request in rebuilt(records):
        if turn in {0, request.turn} and call in {"", request.call}:
            found = Chosen(request=request, previous=previous)
        previous = request
    return found
