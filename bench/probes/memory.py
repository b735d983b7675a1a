"""Memory of conversations: awake, idle, asleep, and over generations of them.

Resident memory is what the kernel says of the process (Rss of /proc/self/smaps_rollup) after a collection, so it holds
arenas that Python cannot give back. Others of the same kind live before the first look, so that caches are full.
"""

import asyncio
import gc
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from bench import floor
from bench.engine import AWAKE, Engine, Talker, running_engine
from bench.measure import Cpu, Figures, folder_in_memory, resident_bytes
from bench.sides import Best, FloorTalker, Talks, taking_turns
from bench.work import SMALL_TURN
from torpor.records.commands import Wake
from torpor.records.ids import ConversationKey
from torpor.supervisor.options import SupervisorOptions

_LIVE: Final = 200
_WARM: Final = 50
_TURNS: Final = 20
_ASLEEP: Final = 200
_GENERATION: Final = 1000
_EMPTY: Final = 10_000
_BATCH: Final = 250
_PACK_AFTER_S: Final = 1.0
_SETTLE_S: Final = 4.0
"""Until all are packed; after that they idle."""
_IDLE_WATCH_S: Final = 4.0


async def live() -> Figures:
    """Bytes per conversation of 20 turns and 11 KB of text, as its last turn left it."""
    with folder_in_memory() as folder:
        async with running_engine(folder, shape=SMALL_TURN) as engine:
            return {"bytes": await _growth_per_conversation(engine)}


async def packed() -> Figures:
    """The same, once the supervisor's sweep has packed it."""
    options = msgspec.structs.replace(AWAKE, pack_after_s=0.0, sweep_s=0.005)
    with folder_in_memory() as folder:
        async with running_engine(folder, shape=SMALL_TURN, options=options) as engine:
            return {"bytes": await _growth_per_conversation(engine)}


async def live_floor() -> Figures:
    """Bytes per conversation of the floor."""
    with folder_in_memory() as folder, floor.writing(folder / "floor.db") as writer:
        async with anyio.create_task_group() as tasks:
            talks = [FloorTalker(f"c_{index}", writer, tasks, shape=SMALL_TURN) for index in range(_WARM + _LIVE)]
            await _talk(talks[:_WARM])
            before = resident_bytes()
            await _talk(talks[_WARM:])
            grown = resident_bytes() - before
            tasks.cancel_scope.cancel()
    return {"bytes": grown / _LIVE}


async def _growth_per_conversation(engine: Engine) -> float:
    await _talk([engine.talker(f"warm_{index}") for index in range(_WARM)])
    before = resident_bytes()
    await _talk([engine.talker(f"c_{index}") for index in range(_LIVE)])
    return (resident_bytes() - before) / _LIVE


async def _talk(talks: Sequence[Talks]) -> None:
    """Twenty turns each, ten conversations at a time, and time for the sweep."""
    for start in range(0, len(talks), _WARM // 5):
        await taking_turns(talks[start : start + _WARM // 5], turns=_TURNS)
        await anyio.sleep(0.01)


async def asleep() -> Figures:
    """What Python still holds of a hibernated conversation, and what else it left behind."""
    with folder_in_memory() as folder:
        async with running_engine(folder) as engine:
            tracemalloc.start()
            await _put_to_sleep([engine.talker(f"warm_{index}") for index in range(_ASLEEP)])
            files, tasks = _open_files(), len(asyncio.all_tasks())
            before = _traced_bytes()
            await _put_to_sleep([engine.talker(f"c_{index}") for index in range(_ASLEEP)])
            held = (_traced_bytes() - before) / _ASLEEP
            tracemalloc.stop()
            return {"bytes": held, "left": _open_files() - files + len(asyncio.all_tasks()) - tasks}


async def _put_to_sleep(talks: Sequence[Talker]) -> None:
    """Two turns each, then hibernation."""
    for talk in talks:
        await taking_turns([talk], turns=2)
        await talk.hibernate()
        talk.leave()


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def generations() -> Figures:
    """Resident bytes with a thousand conversations awake, and with the next thousand while the first sleep."""
    with folder_in_memory() as folder:
        async with running_engine(folder) as engine:
            peaks: list[int] = []
            for generation in range(2):
                talks = [engine.talker(f"c_{generation}_{index}") for index in range(_GENERATION)]
                await taking_turns(talks, turns=1)
                peaks.append(resident_bytes())
                for talk in talks:
                    await talk.hibernate()
                    talk.leave()
            return {"first": peaks[0], "second": peaks[1]}


async def empty_actors() -> Figures:
    """Ten thousand actors that have nothing to do: bytes and microseconds each, and the share of a CPU they idle on."""
    with folder_in_memory() as folder:
        async with running_engine(folder, options=SupervisorOptions(pack_after_s=_PACK_AFTER_S)) as engine:
            await _spawn(engine, "warm", count=_WARM)
            before, best = resident_bytes(), Best()
            for batch in range(_EMPTY // _BATCH):
                cpu = Cpu()
                await _spawn(engine, f"c_{batch}", count=_BATCH)
                best.take("spawn us", cpu.seconds / _BATCH * 1e6)
            held = (resident_bytes() - before) / _EMPTY
            await anyio.sleep(_SETTLE_S)
            cpu, started_s = Cpu(), time.monotonic()
            await anyio.sleep(_IDLE_WATCH_S)
            idle_share = cpu.seconds / (time.monotonic() - started_s)
    return {"bytes": held, "idle percent": idle_share * 100, **best.figures}


async def _spawn(engine: Engine, name: str, *, count: int) -> None:
    """Wake as many as a mailboxful of requests at a time."""
    keys = [ConversationKey("clinic", "ada", f"{name}_{index}") for index in range(count)]
    for start in range(0, count, _WARM):
        replies = [engine.supervisor.post(key, Wake()) for key in keys[start : start + _WARM]]
        for reply in replies:
            await reply.wait()


async def empty_floor() -> Figures:
    """Ten thousand tasks that wait for a memory stream."""
    with folder_in_memory() as folder, floor.writing(folder / "floor.db") as writer:
        async with anyio.create_task_group() as tasks:
            before, best = resident_bytes(), Best()
            talks: list[FloorTalker] = []
            for _ in range(_EMPTY // _BATCH):
                cpu = Cpu()
                talks += [FloorTalker("c", writer, tasks) for _ in range(_BATCH)]
                await anyio.lowlevel.checkpoint()
                best.take("spawn us", cpu.seconds / _BATCH * 1e6)
            held = (resident_bytes() - before) / len(talks)
            tasks.cancel_scope.cancel()
    return {"bytes": held, **best.figures}
