"""What one person may do to the server over all their connections: how many of those, and how many frames a second.

Above: sessions, which enter when they know who is there and pay for every frame. A person is forgotten once they have
no connection and their allowance is whole again, so that leaving and coming back gains nothing.
"""

from collections.abc import Callable

from torpor.errors import TooManyConnections, TooManyFrames
from torpor.gateway.auth import Principal
from torpor.gateway.options import GatewayOptions

_Who = tuple[str, str]


class Share:
    """Of one person, over all their connections: a token bucket, and a place for each connection."""

    __slots__ = ("_at_s", "_burst", "_frames", "_rate", "_refused", "connections")

    def __init__(self, *, rate: float, burst: int, now_s: float) -> None:
        self.connections = 0
        self._rate = rate
        self._burst = burst
        self._frames = float(burst)
        self._refused = 0.0
        """Frames that were told to come back, less those for which there was room since."""
        self._at_s = now_s

    def pay(self, *, now_s: float) -> None:
        """For one frame. Those that are refused are told to come back one after the other, and found a place by then:
        if they were paid for, many that come back as told would keep each other out for ever.

        Raises: TooManyFrames: the frame must not be served; come back later.
        """
        self._refill(now_s)
        if self._frames >= 1:
            self._frames -= 1
            return
        self._refused = min(self._refused + 1, float(self._burst))
        raise TooManyFrames(rate=self._rate, retry_after_s=round(self._refused / self._rate, 3))

    @property
    def is_spent(self) -> bool:
        """As many frames were refused as may come at once: this is no accident any more."""
        return self._refused >= self._burst

    def is_whole(self, *, now_s: float) -> bool:
        self._refill(now_s)
        return self._frames >= self._burst

    def _refill(self, now_s: float) -> None:
        room = max(0.0, now_s - self._at_s) * self._rate
        self._frames = min(self._frames + room, float(self._burst))
        self._refused = max(self._refused - room, 0.0)
        self._at_s = now_s


class Limits:
    """One for all connections of a server."""

    def __init__(self, options: GatewayOptions, *, now_s: Callable[[], float]) -> None:
        self._options = options
        self._now_s = now_s
        self._shares: dict[_Who, Share] = {}

    def enter(self, principal: Principal) -> Share:
        """A place for one more connection; to be left with ``leave``.

        Raises: TooManyConnections: the person has as many as they may.
        """
        options = self._options
        who = (principal.tenant, principal.subject)
        if (share := self._shares.get(who)) is None:
            share = Share(rate=options.frames_per_s, burst=options.frames_burst, now_s=self._now_s())
            self._shares[who] = share
        if share.connections >= options.connections_per_principal_max:
            raise TooManyConnections(share.connections, retry_after_s=options.connections_retry_s)
        share.connections += 1
        return share

    def leave(self, share: Share) -> None:
        share.connections -= 1

    def pay(self, share: Share) -> None:
        """Raises: TooManyFrames."""
        share.pay(now_s=self._now_s())

    def sweep(self) -> None:
        """Forget whom nothing is to be remembered of."""
        now_s = self._now_s()
        gone = [who for who, share in self._shares.items() if not share.connections and share.is_whole(now_s=now_s)]
        for who in gone:
            del self._shares[who]

    def __repr__(self) -> str:
        return f"<Limits people={len(self._shares)}>"
