"""A live conversation as ``lives`` holds it: its actor, and what waits for the next one."""

import anyio

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import Actor
from torpor.actor.mailbox import PendingReply
from torpor.errors import ClientError
from torpor.store.contract import Lease


class Entry:
    """One for each live conversation, from its first incarnation to the end of its last one."""

    __slots__ = ("_gone", "actor", "is_guest", "lease", "next", "scope", "verdict")

    def __init__(self, actor: Actor, *, is_guest: bool) -> None:
        self.actor = actor
        self.is_guest = is_guest
        """Whether it takes nobody's place: of a conversation that may not exist."""
        self.next: list[PendingReply] = []
        self.scope = anyio.CancelScope()
        """Of the present incarnation and the pause behind it."""
        self.lease: Lease | None = None
        self.verdict: ClientError | None = None
        """Why there will be no further incarnation, once that was decided."""
        self._gone: anyio.Event | None = None

    def holds(self, lease: Lease) -> bool:
        """Whether its actor works under ``lease``, and neither left nor was followed by another one."""
        return self.lease is lease and self.actor.state not in {ActorState.HIBERNATING, ActorState.STOPPED}

    @property
    def takes_commands(self) -> bool:
        """Whether its actor does; otherwise they wait for the next one."""
        return not self.actor.mailbox.is_closed and self.actor.state is not ActorState.STOPPED

    def follow(self, actor: Actor) -> None:
        """Let ``actor`` be the next incarnation."""
        self.actor, self.lease, self.scope = actor, None, anyio.CancelScope()

    def end(self, verdict: ClientError) -> None:
        """Cut the present incarnation off and let none follow; commands without an answer are told ``verdict``."""
        self.verdict = verdict
        self.scope.cancel()

    async def gone(self) -> None:
        """Return once there is no incarnation any more."""
        if self._gone is None:
            self._gone = anyio.Event()
        await self._gone.wait()

    def forget(self) -> None:
        """There is none any more."""
        if self._gone is not None:
            self._gone.set()

    @property
    def waiting(self) -> int:
        """Commands that nobody has taken yet."""
        return len(self.actor.mailbox) + len(self.next)
