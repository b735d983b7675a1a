"""What a client waits for: appends between its message and the receipt, and time beyond the model's own."""

import time
from collections.abc import Sequence
from typing import Any, Final

import anyio

from bench.engine import running_engine
from bench.measure import Figures, folder_in_memory, folder_on_disk, quantile
from bench.sides import TOGETHER, Best, Talks, both_sides
from bench.work import InstantModel
from torpor.model.contract import ModelReply, ModelRequest, ReplySink
from torpor.store.contract import Store, Ticket

MODEL_LATENCY_S: Final = 0.05
_SAMPLES: Final = 3
_TURNS: Final = 3


class DurableAppends:
    """Around a store: counts its appends as they become durable. What one costs in flushes is another row's."""

    def __init__(self) -> None:
        self.count = 0

    def around(self, store: Store) -> Store:
        append = store.append

        def counted(*args: Any, **named: Any) -> Ticket:
            return _CountedTicket(append(*args, **named), self)

        store.append = counted  # type: ignore[method-assign]  # every other call stays the store's own
        return store


class _CountedTicket:
    def __init__(self, ticket: Ticket, appends: DurableAppends) -> None:
        self._ticket = ticket
        self._appends: DurableAppends | None = appends

    async def wait(self) -> None:
        await self._ticket.wait()
        if self._appends is not None:
            self._appends.count += 1
            self._appends = None


class _WatchedModel(InstantModel):
    """Remembers how many appends were durable when the last byte of its last reply was out."""

    def __init__(self, appends: DurableAppends) -> None:
        super().__init__(latency_s=MODEL_LATENCY_S)
        self._appends = appends
        self.durable_at_end = 0

    async def reply(self, request: ModelRequest, sink: ReplySink) -> ModelReply:
        reply = await super().reply(request, sink)
        self.durable_at_end = self._appends.count
        return reply


async def flushes_waited_for() -> Figures:
    """From message to receipt, and from the model's last byte to the final event."""
    appends = DurableAppends()
    model = _WatchedModel(appends)
    with folder_in_memory() as folder:
        async with running_engine(folder, model=model, wrap_store=appends.around) as engine:
            talk = engine.talker("waits")
            await talk.turn()
            await anyio.sleep(MODEL_LATENCY_S)  # until it rests
            before = appends.count
            await talk.send()
            at_receipt = appends.count
            await talk.finished()
            return {"to receipt": at_receipt - before, "to last event": appends.count - model.durable_at_end}


async def overhead() -> Figures:
    """99th percentile of what a turn takes beyond its two model calls, milliseconds, 100 conversations, on a disk."""
    best = Best()
    with folder_on_disk() as folder:
        async with both_sides(folder, latency_s=MODEL_LATENCY_S) as sides:
            for _ in range(_SAMPLES):
                for side in sides:
                    took_s: list[float] = []
                    async with anyio.create_task_group() as tasks:
                        for index, pair in enumerate(side.pairs(TOGETHER)):
                            tasks.start_soon(_timed_turns, pair, index, took_s)
                    beyond_s = [took - 2 * MODEL_LATENCY_S for took in took_s]
                    best.take(side.name, quantile(beyond_s, 0.99) * 1e3)
    return best.figures


async def _timed_turns(pair: Sequence[Talks], index: int, took_s: list[float]) -> None:
    """They begin one after the other within the time of a turn, so they do not march in step."""
    await anyio.sleep(index / TOGETHER * 2 * MODEL_LATENCY_S)
    for _ in range(_TURNS):
        for talk in pair:
            started_s = time.perf_counter()
            await talk.turn()
            took_s.append(time.perf_counter() - started_s)
