"""Serves connections: reads requests, lets the host or the control decide, performs what they decided.

It knows which connections are idle, so that a port that is closed leaves none behind.
"""

import time
from datetime import UTC, datetime

from torpor_fake_api.control import PREFIX, Control
from torpor_fake_api.delivery.plan import plain
from torpor_fake_api.errors import envelope
from torpor_fake_api.host import Host
from torpor_fake_api.wire.exchange import BadRequest, Exchange, Request
from torpor_fake_api.wire.gates import Gates
from torpor_fake_api.wire.perform import Outcome, Performance
from torpor_fake_api.wire.sockets import Gone, Stream


class Connections:
    """The connections of one host."""

    def __init__(self, host: Host, *, control: Control, gates: Gates) -> None:
        self._host = host
        self._control = control
        self._gates = gates
        self._open: dict[Stream, Performance | None] = {}
        """What each of them is performing."""
        self.are_refused = False
        """Whether a connection ends with the response it is at."""

    def __repr__(self) -> str:
        return f"<Connections open={len(self._open)} refused={self.are_refused}>"

    def end_idle(self) -> None:
        """Close every connection that is not in the middle of a response."""
        for stream, performance in tuple(self._open.items()):
            if performance is None or performance.outcome is not Outcome.OPEN:
                stream.close()

    async def serve(self, stream: Stream) -> None:
        """One connection, until one of the two sides has had enough."""
        self._open[stream] = None
        exchange = Exchange(stream)
        try:
            while not self.are_refused and (request := await exchange.receive()) is not None:
                if not await self._answer(exchange, request):
                    break
        except (Gone, TimeoutError):
            return
        except BadRequest as exc:
            await self._tell_apart(exchange, exc)
        finally:
            del self._open[stream]
            stream.close()

    async def serve_control(self, stream: Stream) -> None:
        """The same for a connection to the port of control, which is never refused."""
        exchange = Exchange(stream)
        try:
            while (request := await exchange.receive()) is not None:
                await self._perform_control(exchange, request)
                if not exchange.restart():
                    break
        except (Gone, TimeoutError, BadRequest):
            return
        finally:
            stream.close()

    async def _answer(self, exchange: Exchange, request: Request) -> bool:
        """Whether the connection serves another request."""
        if request.target.startswith(PREFIX):
            await self._perform_control(exchange, request)
            return exchange.restart()
        reaction = self._host.react(request, now_s=time.monotonic(), today=datetime.now(UTC))
        received, answer = reaction.received, reaction.answer
        performance = Performance(exchange, gates=self._gates, watcher=answer)
        self._open[exchange.stream] = performance
        try:
            received.outcome = await performance.run(reaction.steps)
        finally:
            self._open[exchange.stream] = None
            if answer:
                answer.ended()
            received.ended.set()
        return received.outcome is Outcome.FINISHED and exchange.restart()

    async def _perform_control(self, exchange: Exchange, request: Request) -> None:
        await Performance(exchange, gates=self._gates).run(self._control.react(request))

    async def _tell_apart(self, exchange: Exchange, fault: BadRequest) -> None:
        """Tell a client that speaks no HTTP what it did."""
        request_id = self._host.new_id("req")
        body = envelope("invalid_request_error", str(fault), request_id=request_id)
        steps = plain(400, body, headers=(("request-id", request_id), ("connection", "close")))
        await Performance(exchange, gates=self._gates).run(steps)
