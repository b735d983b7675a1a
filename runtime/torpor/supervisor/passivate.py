"""Who sleeps, and when: actors that were idle for long, that must make room, or while memory is short.

Above: ``lives``, which tells what its actors do, asks before it starts one more, and has this look around now and
then. Below: ``resting``, who rests since when, and ``room``, how many may live. A running actor is never chosen; one
that somebody watches may be, since a thaw is quick and gives the same. One that is used before it has left stays.
"""

from functools import partial
from typing import Final

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import Actor
from torpor.actor.mailbox import PendingReply
from torpor.clock import Clock
from torpor.records.commands import Hibernate
from torpor.supervisor.options import SupervisorOptions
from torpor.supervisor.resting import Resting
from torpor.supervisor.room import Room
from torpor.supervisor.statistics import Refusal, Sleep

_STAYS: Final = True
"""Any answer takes the request back; nobody waits for it."""


class Passivation:
    """See the module docstring. ``live`` counts every conversation with an actor, those that are leaving included."""

    def __init__(self, options: SupervisorOptions, *, room: Room, clock: Clock) -> None:
        self._options = options
        self._room = room
        self._clock = clock
        self._resting = Resting()
        self._leaving: dict[Actor, tuple[PendingReply, Sleep]] = {}
        """Those that were asked to hibernate here, and why."""

    def rested(self, actor: Actor) -> None:
        """It has nothing to do: it was just loaded, or its turns have ended."""
        if actor not in self._leaving:
            self._resting.came(actor, now_s=self._clock.monotonic_s())

    def used(self, actor: Actor) -> None:
        """It was given a command: it need not leave any more, and is the last of those that rest."""
        if (asked := self._leaving.get(actor)) is not None:
            reply, _ = asked
            reply.resolve(_STAYS)
        self._resting.used(actor, now_s=self._clock.monotonic_s())

    def ended(self, actor: Actor) -> Sleep:
        """It is no more. Returns: why it hibernated, if it did."""
        self._resting.left(actor)
        _, why = self._leaving.pop(actor, (None, Sleep.ASKED))
        return why

    def refusal(self, *, live: int) -> Refusal | None:
        """Make room for one more; why there is none."""
        if live and self._room.is_short_of_memory():
            return Refusal.MEMORY
        if self._room.surplus(live - len(self._leaving) + 1) and not self._put_to_sleep(Sleep.LRU):
            return Refusal.LIVE
        return None

    def look(self, *, live: int) -> None:
        """Pack those that rest, and let sleep who should; costs as much as there is to do."""
        now_s, idle_timeout_s = self._clock.monotonic_s(), self._options.idle_timeout_s
        self._resting.pack(until_s=now_s - min(self._options.pack_after_s, idle_timeout_s), now_s=now_s)
        for actor in self._resting.take_until(until_s=now_s - idle_timeout_s, now_s=now_s):
            self._ask_to_leave(actor, Sleep.IDLE)
        self._put_many_to_sleep(self._room.surplus(live - len(self._leaving)), Sleep.LRU)
        if self._room.is_short_of_memory():
            self._room.trim()  # what left since the last look may have been enough
            if self._room.is_short_of_memory():
                self._put_many_to_sleep(self._room.leaving_for_memory(live - len(self._leaving)), Sleep.MEMORY)

    def _put_many_to_sleep(self, count: int, why: Sleep) -> None:
        for _ in range(count):
            if not self._put_to_sleep(why):
                return

    def _put_to_sleep(self, why: Sleep) -> bool:
        """Ask the one that rests for the longest time to hibernate; False when nobody rests."""
        actor = self._resting.take_oldest(now_s=self._clock.monotonic_s())
        if actor is None:
            return False
        self._ask_to_leave(actor, why)
        return True

    def _ask_to_leave(self, actor: Actor, why: Sleep) -> None:
        reply = PendingReply(Hibernate())
        actor.mailbox.offer_last(reply)
        self._leaving[actor] = (reply, why)
        reply.when_done(partial(self._answered, actor))

    def _answered(self, actor: Actor) -> None:
        """It has left, or stays: it was used again, or has found itself in a turn that began meanwhile."""
        if actor.state is not ActorState.STOPPED:
            self._leaving.pop(actor, None)
            self._resting.used(actor, now_s=self._clock.monotonic_s())
