"""The actor's bounded queue of commands, and the answers on their way back.

Offering never waits: a full mailbox is an error at once. The actor takes everything that waits in one go, so commands
that arrive together share a commit. Closing succeeds only when nothing waits, which is what makes hibernation lose
nothing.
"""

from collections.abc import Callable
from typing import TypeAlias

import anyio

from torpor.errors import Busy, TorporError
from torpor.records.commands import Command, Receipt, Refreshed

Answer: TypeAlias = Receipt | Refreshed | int | bool


class PendingReply:
    """One command with the answer it will get; waited for by any number of tasks."""

    __slots__ = ("_answer", "_done", "_error", "_event", "_listeners", "command")

    def __init__(self, command: Command) -> None:
        self.command = command
        self._event: anyio.Event | None = None
        self._answer: Answer | None = None
        self._error: TorporError | None = None
        self._done = False
        self._listeners: list[Callable[[], None]] | None = None

    @property
    def is_done(self) -> bool:
        return self._done

    def when_done(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` as soon as there is an answer; it neither waits nor raises."""
        if self._done:
            tell()
        else:
            self._listeners = [*(self._listeners or ()), tell]

    def resolve(self, answer: Answer) -> None:
        """Answer it; only the first answer counts."""
        self._end(answer, None)

    def fail(self, error: TorporError) -> None:
        """Answer it with an error; only the first answer counts."""
        self._end(None, error)

    async def wait(self) -> Answer:
        """The answer. Raises: the error it failed with."""
        if not self._done:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        return self.result()

    def result(self) -> Answer:
        """The answer, of one that is done. Raises: the error it failed with."""
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    def _end(self, answer: Answer | None, error: TorporError | None) -> None:
        if self._done:
            return
        self._done, self._answer, self._error = True, answer, error
        if self._event is not None:
            self._event.set()
        listeners, self._listeners = self._listeners, None
        for tell in listeners or ():
            tell()


class Mailbox:
    """See the module docstring. One receiver."""

    __slots__ = ("_capacity", "_closed", "_retry_after_s", "_waiting", "_wakeup", "_woken")

    def __init__(self, *, capacity: int, retry_after_s: float) -> None:
        self._capacity = capacity
        self._retry_after_s = retry_after_s
        self._waiting: list[PendingReply] = []
        self._wakeup: anyio.Event | None = None
        self._woken = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        return self._closed

    def offer(self, reply: PendingReply) -> None:
        """Queue a command. Raises: Busy: ``capacity`` of them wait already."""
        if len(self._waiting) >= self._capacity:
            raise Busy(
                "mailbox",
                waiting=len(self._waiting),
                bound="actor.mailbox_capacity",
                retry_after_s=self._retry_after_s,
            )
        self._waiting.append(reply)
        self._set()

    def offer_last(self, reply: PendingReply) -> None:
        """Queue a command of the engine's own, beyond the capacity if need be."""
        self._waiting.append(reply)
        self._set()

    async def receive(self) -> list[PendingReply]:
        """Everything that waits, in order; empty after ``wake``."""
        while not self._waiting and not self._woken:
            self._wakeup = anyio.Event()
            await self._wakeup.wait()
        self._woken = False
        return self.take()

    def take(self) -> list[PendingReply]:
        """Everything that waits, in order, without waiting for more."""
        taken, self._waiting = self._waiting, []
        return taken

    def wake(self) -> None:
        """Let the receiver look around although no command came."""
        self._woken = True
        self._set()

    def close_if_empty(self) -> bool:
        """Take no more commands; refused while one waits."""
        self._closed = not self._waiting
        return self._closed

    def _set(self) -> None:
        if self._wakeup is not None:
            self._wakeup.set()
            self._wakeup = None
