"""What the gateway sees of the supervisor: a port to deliver commands through, and a list of what lives."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from torpor.records.commands import Command, Receipt, Refreshed
from torpor.records.ids import ConversationKey
from torpor.store.contract import DirectoryRow, QuarantineKind
from torpor.supervisor.forking import ForkConversation

Answer = Receipt | Refreshed | int | bool
"""What a command is answered with; see ``records.commands``."""


class Reply(Protocol):
    """The answer to one command, on its way."""

    async def wait(self) -> Answer:
        """Raises: ClientError: why it was not done; with ``retry`` SAFE the same command may be given again."""
        ...

    def when_done(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` once ``result`` may be asked for, at once if it may be now; it neither waits nor raises."""
        ...

    def result(self) -> Answer:
        """What ``wait`` returns, without waiting. Raises: as ``wait``."""
        ...


class LiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a live actor is doing; a conversation without one is hibernated."""

    state: str
    """``thawing``, ``running``, ``idle`` or ``hibernating``."""
    turn: int = 0
    waiting: int = 0


class RunningTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that runs now, and the step of it that is under way. No content."""

    key: ConversationKey
    agent: str
    turn: int
    began_us: int
    """UTC, microseconds; before a restart, if there was one since."""
    step: str
    """``prepare_turn``, ``compact``, ``call_model``, ``run_tools`` or ``finish_turn``; ``pause`` before a model call is
    repeated."""
    of: tuple[str, ...] = ()
    """The model that is asked, or the tools that run."""
    step_began_us: int = 0
    waiting: int = 0
    """Messages that wait for turns of their own."""


class Draining(msgspec.Struct, frozen=True, kw_only=True):
    """How far a drain has come."""

    draining: bool
    turns: int
    """That run; of a server that drains, those that have not come to the end of a step."""
    jobs: int
    """That run."""
    ends_us: int = 0
    """UTC, microseconds, when what is left is cut off; 0 while nothing drains."""


class Forgotten(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken away of an owner, by one call."""

    conversations: int
    records: int
    blobs: int
    left: int
    """Conversations that are still there: more than were to be taken at once, begun meanwhile, or not to be had now."""
    lingers: bool
    """Whether somebody from outside reads the store and keeps what was taken away readable until they end."""


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A directory row and, when its actor lives, what that is doing."""

    row: DirectoryRow
    live: LiveStatus | None


class Directory(Protocol):
    """Implemented by ``supervisor.directory.StoredDirectory``."""

    def begin_delete(self, key: ConversationKey, *, principal: str) -> Reply:
        """As ``delete``, whose end the answer tells; never waits. Every command that comes later meets the deletion
        and is refused, until it has ended or is found to be of nothing."""
        ...

    async def delete(self, key: ConversationKey, *, principal: str) -> None:
        """Take a conversation away, so that nothing of it is left and its id is as if it had never been used.

        A running turn is cancelled first. Who watches it is told. Cancelling the caller withdraws nothing.
        Raises: UnknownConversation: there is none. Unavailable, StoreError: to be asked for again.
        """
        ...

    async def forget(self, *, tenant: str, owner: str, limit: int, principal: str) -> Forgotten:
        """The same with at most ``limit`` conversations of an owner; with the last one goes whatever else is kept.

        One that cannot be had is left. To be called until nothing is left; an owner of whom there is nothing is no
        error. Raises: StoreError: to be asked for again.
        """
        ...

    async def survey(self, *, tenant: str, owner: str) -> Forgotten:
        """What ``forget`` would take away in the end. Takes nothing. Raises: StoreError."""
        ...


class Forks(Protocol):
    """Implemented by ``supervisor.forks.StoredForks``."""

    async def fork(self, fork: ForkConversation) -> None:
        """Begin another conversation of the owner with what stands before a message. Doing it again changes nothing.

        Raises: UnknownConversation: the source is not there. Quarantined: it is, and it was not an operator who asked.
            NotForkable, ConversationExists, TooManyConversations, Unavailable, StoreError: nothing was begun; after the
            last it may have been.
        """
        ...


class Conversations(Protocol):
    """Implemented by ``supervisor.registry.Supervisor``."""

    def post(self, key: ConversationKey, command: Command) -> Reply:
        """Take the command in order of calls and thaw its actor if it sleeps; never waits.

        Raises: Busy: the mailbox is full, or there is no room for one more actor; a command that begins no conversation
            may be answered so later. Unavailable: the supervisor is draining. Quarantined: it is being quarantined.
        """
        ...

    async def quarantine(
        self, key: ConversationKey, *, reason: str, kind: QuarantineKind = QuarantineKind.OPERATOR
    ) -> None:
        """Cut off its actor, a running turn with it, and let none start until it is released. Its journal stays as it
        is; who watches it is told.

        Raises: UnknownConversation: it is not there, or not any more. Unavailable: it is not quarantined, since its
            actor did not end in time or lives on another server. StoreError: nor is it then.
        """
        ...

    async def release(self, key: ConversationKey) -> None:
        """Take that back, whoever did it; a turn that is due goes on. Who watches it is told. Of one that is not
        quarantined it is nothing.

        Raises: StoreError: it is still quarantined.
        """
        ...

    async def deliver(self, key: ConversationKey, command: Command) -> Answer:
        """``post`` and wait for the answer. Cancelling the caller withdraws nothing."""
        ...

    def live_status(self, key: ConversationKey) -> LiveStatus | None: ...

    async def list_conversations(
        self,
        *,
        tenant: str | None,
        owner: str | None,
        limit: int,
        after: ConversationKey | None = None,
        with_archived: bool = True,
    ) -> tuple[Listing, ...]: ...
