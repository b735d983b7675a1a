"""How many connections the server holds, those included that have not said a word yet.

Above: the server, which makes one and hands its kind of connection to ``websockets``. Strangers that connect and stay
silent must not use up the descriptors that journals, tools and models need: beyond a bound they are cut at once. With
TLS a connection counts from the end of its TLS handshake, which has a deadline.
"""

import asyncio
import resource
from pathlib import Path
from typing import Final

import structlog

from torpor.gateway.metered import Metered
from torpor.gateway.options import GatewayOptions

_OTHERS: Final = 128
"""Descriptors for everything but connections: files, tools, models; of a small limit an eighth."""
_ASIDE: Final = 64
"""Connections beyond the bound that are told so, or ask whether the server is well; of few a quarter."""
_log = structlog.get_logger()


class Intake:
    """Counts what is connected. ``connections_max`` and ``backlog`` are those of the options, or what fits into the
    descriptors of the process."""

    def __init__(self, options: GatewayOptions, *, descriptors: int, used: int) -> None:
        """Args: descriptors: that the process may have.  used: by now."""
        eighth = max(descriptors // 8, 1)
        self.backlog = min(options.backlog, eighth)  # so many may be accepted before the first of them is looked at
        room = max(descriptors - used - min(_OTHERS, eighth) - self.backlog, 2)
        self.sockets_max = min(options.connections_max + _ASIDE, room)
        self.connections_max = min(options.connections_max, self.sockets_max - min(_ASIDE, self.sockets_max // 4))
        self.sockets = 0
        self.turned_away = 0
        """Cut at once, since the start."""
        self.transports = set[asyncio.WriteTransport]()
        """Of those that are connected, whether or not they have said anything."""
        if self.connections_max < options.connections_max:
            _log.warning(
                "gateway.connections_lowered",
                connections_max=self.connections_max,
                configured=options.connections_max,
                descriptors=descriptors,
                remedy="allow the process more open files, or lower gateway.connections_max",
            )

    def enter(self) -> bool:
        """Whether there is a place for one more, which is to be left."""
        if self.sockets >= self.sockets_max:
            self.turned_away += 1
            return False
        self.sockets += 1
        return True

    def leave(self) -> None:
        self.sockets -= 1

    def cut(self) -> None:
        """End all of them without a word."""
        for transport in tuple(self.transports):
            transport.abort()


def open_intake(options: GatewayOptions) -> Intake:
    """With as many descriptors as the process needs, or may have."""
    used = _used_descriptors()
    wanted = used + options.connections_max + _ASIDE + _OTHERS + options.backlog
    return Intake(options, descriptors=_allowed_descriptors(wanted), used=used)


def counted_by(intake: Intake, *, bounds: GatewayOptions) -> type[Metered]:
    """Connections that are counted as long as they are there, and whose frames are within ``bounds``."""

    class Counted(Metered):
        __slots__ = ("_is_in",)  # see ``Metered``
        options = bounds

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            self._is_in = intake.enter()
            if self._is_in:
                intake.transports.add(transport)
                super().connection_made(transport)
            else:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._is_in:
                intake.leave()
                intake.transports.discard(self.transport)
                super().connection_lost(exc)

    return Counted


def _allowed_descriptors(wanted: int) -> int:
    """What the process may have now; its own limit is raised to what is wanted, as far as that is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    except (OSError, ValueError):  # some systems have a bound beside the hard limit
        return soft
    return raised


def _used_descriptors() -> int:
    try:
        return sum(1 for _ in Path("/dev/fd").iterdir())
    except OSError:
        return _OTHERS
