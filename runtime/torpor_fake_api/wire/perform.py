"""Performs a plan at one connection, and tells how far it came."""

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Protocol, assert_never

import anyio

from torpor_fake_api.delivery.events import PING
from torpor_fake_api.delivery.plan import End, Garbage, Head, Leave, Send, Slow, Step, Wait
from torpor_fake_api.scripting.faults import Stall
from torpor_fake_api.wire.exchange import Exchange
from torpor_fake_api.wire.gates import Gates
from torpor_fake_api.wire.sockets import Gone


class Outcome(StrEnum):
    """How a response ended."""

    OPEN = "open"
    FINISHED = "finished"
    CUT = "cut"
    RESET = "reset"
    CLIENT_LEFT = "client_left"
    CLIENT_STUCK = "client_stuck"
    """It read nothing for too long."""


class Watcher(Protocol):
    """Who wants to know how far a message came."""

    def delivered(self, block: int) -> None:
        """The client has every block up to this one."""
        ...

    def completing(self) -> None:
        """The last event is about to be sent: whoever has read it may ask again at once."""
        ...


class Performance:
    """One response on its way."""

    def __init__(self, exchange: Exchange, *, gates: Gates, watcher: Watcher | None = None) -> None:
        self._exchange = exchange
        self._gates = gates
        self._watcher = watcher
        self._has_begun = False
        self.outcome = Outcome.OPEN

    async def run(self, steps: Sequence[Step]) -> Outcome:
        """Perform ``steps`` until they end or the client leaves."""
        async with anyio.create_task_group() as group:
            group.start_soon(partial(self._until_client_leaves, group.cancel_scope), name="client_left")
            try:
                for step in steps:
                    await self._perform(step)
            except Gone:
                self.outcome = Outcome.CLIENT_LEFT
            except TimeoutError:
                self.outcome = Outcome.CLIENT_STUCK
            group.cancel_scope.cancel()
        return self.outcome

    async def _until_client_leaves(self, scope: anyio.CancelScope) -> None:
        await self._exchange.client_left()
        if self.outcome is Outcome.OPEN:
            self.outcome = Outcome.CLIENT_LEFT
            scope.cancel()

    async def _perform(self, step: Step) -> None:
        exchange = self._exchange
        match step:
            case Head(status=status, headers=headers):
                await exchange.send_head(status, headers)
                self._has_begun = True
            case Send():
                await self._send(step)
            case Garbage(data=data):
                await exchange.send_raw(data)
            case Wait(seconds=seconds):
                await anyio.sleep(seconds)
            case Slow(size_bytes=size, interval_s=interval_s):
                exchange.slow_down(size, interval_s)
            case Stall():
                await self._stall(step)
            case End():
                await exchange.end()
                self.outcome = Outcome.FINISHED
            case Leave(is_reset=is_reset):
                self.outcome = Outcome.RESET if is_reset else self._left_outcome()
                exchange.stream.close(is_reset=is_reset)
            case _:
                assert_never(step)

    async def _send(self, step: Send) -> None:
        watcher = self._watcher
        if watcher and step.is_last:
            watcher.completing()
        await self._exchange.send_data(step.data)
        if watcher and step.ends_block is not None:
            watcher.delivered(step.ends_block)

    def _left_outcome(self) -> Outcome:
        return Outcome.FINISHED if self.outcome is Outcome.FINISHED else Outcome.CUT

    async def _stall(self, stall: Stall) -> None:
        gate = self._gates[stall.name]
        gate.reached.set()
        with anyio.move_on_after(stall.seconds if stall.seconds is not None else float("inf")):
            if stall.pings_every_s is None or not self._has_begun:
                await gate.opened.wait()
            while not gate.opened.is_set():
                await self._exchange.send_data(PING)
                with anyio.move_on_after(stall.pings_every_s or 0):
                    await gate.opened.wait()
