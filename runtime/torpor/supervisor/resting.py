"""The actors that have nothing to do, in order of how long that has been so.

Above: ``passivate``, which packs, hibernates and makes room. An actor that wakes up keeps its place until somebody
looks at it there, and comes to the end when it rests again; so a look costs as much as it finds, and being woken
costs nothing.
"""

from collections import OrderedDict
from collections.abc import Iterator

from torpor.actor.lifecycle import ActorState
from torpor.actor.loop import Actor


class Resting:
    """See the module docstring; the longest at rest first."""

    def __init__(self) -> None:
        self._packed: OrderedDict[Actor, float] = OrderedDict()
        self._loose: OrderedDict[Actor, float] = OrderedDict()
        # Both with the moment since when; whatever is packed has rested for longer than what is not.

    def came(self, actor: Actor, *, now_s: float) -> None:
        """It has nothing to do as of now."""
        self.left(actor)
        self._loose[actor] = now_s

    def used(self, actor: Actor, *, now_s: float) -> None:
        """It was given something, which need not wake it."""
        if actor.state is ActorState.IDLE:
            self.came(actor, now_s=now_s)

    def left(self, actor: Actor) -> None:
        """It has ended, or is about to."""
        self._packed.pop(actor, None)
        self._loose.pop(actor, None)

    def pack(self, *, until_s: float, now_s: float) -> None:
        """Hold the histories of those that rest since ``until_s`` or longer in one piece of memory each."""
        for actor, since_s in self._found(self._loose, until_s=until_s, now_s=now_s):
            actor.pack()
            self._packed[actor] = since_s

    def take_until(self, *, until_s: float, now_s: float) -> Iterator[Actor]:
        """Those that are packed and rest since ``until_s`` or longer, longest first; they are forgotten here."""
        for actor, _ in self._found(self._packed, until_s=until_s, now_s=now_s):
            yield actor

    def take_oldest(self, *, now_s: float) -> Actor | None:
        """The one that rests for the longest time; it is forgotten here. None when nobody rests."""
        for line in (self._packed, self._loose):
            for actor, _ in self._found(line, until_s=now_s, now_s=now_s):
                return actor
        return None

    def _found(self, line: OrderedDict[Actor, float], *, until_s: float, now_s: float) -> Iterator[tuple[Actor, float]]:
        """Take those that still rest off the line's beginning, up to ``until_s``."""
        for _ in range(len(line)):
            actor, since_s = next(iter(line.items()))
            if since_s > until_s:
                return
            del line[actor]
            if actor.state is not ActorState.IDLE:
                continue  # it comes again when it rests again
            if actor.has_commands:
                self._loose[actor] = now_s
                continue
            yield actor, since_s
