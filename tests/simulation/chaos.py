"""Misfortune out of the blue: crashes, stops, pauses, jumping clocks, spoilt snapshots, operators."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import trio

from tests.simulation.faults import Fault, Sight
from tests.simulation.life import ANSWER_WITHIN_S, Fuse, Life
from tests.simulation.media import Medium
from tests.simulation.model import key_of
from tests.simulation.world import World
from torpor.errors import TorporError
from torpor.supervisor.registry import Supervisor

_POINTS: Final = (
    *("append", "core.commit", "core.committed", "bus.publish", "bus.published", "bus.delta"),
    *("store.acquire", "store.acquire.answered", "store.load", "store.load.answered", "store.receipt"),
    *("store.put_snapshot",) * 5,  # who wakes up there has often lost its lease
    *("store.put_snapshot.answered", "store.release", "store.release.answered", "store.renew"),
    *("model.asked", "model.text", "tool.effect", "tool.effected", "blob.put"),
    *("summary.asked", "summary.asked", "summary.answered", "live.asked", "live.answered"),
    *("jobs.claim_job", "jobs.claim_job.answered", "jobs.finish_job", "jobs.finish_job.answered", "jobs.retry_job"),
)


class Stepper(trio.abc.Instrument):
    """Ends a life after so many steps of the scheduler, whichever task takes them."""

    def __init__(self) -> None:
        self._left = 0
        self._strike: Callable[[], None] | None = None

    def arm(self, steps: int, strike: Callable[[], None]) -> None:
        self._left, self._strike = steps, strike

    def disarm(self) -> None:
        self._strike = None

    def before_task_step(self, task: Any) -> None:
        if self._strike is None:
            return
        self._left -= 1
        if self._left <= 0:
            strike, self._strike = self._strike, None
            strike()


class Chaos:
    """Strikes at moments of its own choice while the storm lasts."""

    def __init__(self, world: World, *, medium: Medium, stepper: Stepper, lives: Callable[[], list[Life]]) -> None:
        self._world = world
        self._medium = medium
        self._stepper = stepper
        self._lives = lives
        self.operators = 0
        """Those that have set something aside and not released it yet."""

    async def run(self) -> None:
        world, rng = self._world, self._world.rng
        kinds = [fault for fault, weight in world.plan.weight.items() if weight]
        async with anyio.create_task_group() as operators:
            while kinds:
                await anyio.sleep(rng.expovariate(1 / world.plan.misfortune_every_s))
                if (lives := self._lives()) and world.is_stormy:
                    for life in lives:
                        self._look_at(life)
                    kind = rng.choices(kinds, weights=[world.plan.weight[kind] for kind in kinds])[0]
                    life = rng.choice(lives)
                    if kind is Fault.QUARANTINED:
                        world.struck(kind)
                        self.operators += 1
                        operators.start_soon(self._set_aside, life, f"c{rng.randrange(world.plan.conversations)}")
                    else:
                        self._strike(kind, life)

    def _look_at(self, life: Life) -> None:
        """How far its bounds were tried."""
        if life.engine is not None:
            now = life.engine.supervisor.statistics()
            if now.hibernations["lru"]:
                self._world.saw(Sight.MADE_ROOM)
            if now.refused["live"]:
                self._world.saw(Sight.NO_ROOM)

    async def _set_aside(self, life: Life, conversation: str) -> None:
        """Have a life quarantine a conversation, whatever becomes of that, and any one release it a while later."""
        world, rng, key = self._world, self._world.rng, key_of(conversation)
        if await self._done(life, lambda supervisor: supervisor.quarantine(key, reason="looks odd")):
            world.saw(Sight.SET_ASIDE)
        await anyio.sleep(rng.choice((0.0, 0.5, 5.0)))
        while True:
            if (lives := self._lives()) and await self._done(
                rng.choice(lives), lambda supervisor: supervisor.release(key)
            ):
                world.saw(Sight.RELEASED)
                self.operators -= 1
                return
            await anyio.sleep(0.5)

    async def _done(self, life: Life, ask: Callable[[Supervisor], Awaitable[None]]) -> bool:
        """Whether a life did it; one that ended meanwhile never answers."""
        if life.engine is None:
            return False
        with anyio.move_on_after(ANSWER_WITHIN_S):
            try:
                await ask(life.engine.supervisor)
            except TorporError as exc:
                self._world.note(life.name, "operator refused", why=exc.code)
                return False
            return not life.is_dead
        return False

    def _strike(self, kind: Fault, life: Life) -> None:
        world, rng = self._world, self._world.rng
        match kind:
            case Fault.CRASH_AT_STEP:
                self._stepper.arm(rng.randint(1, 150), lambda: self._crash(life))
            case Fault.CRASH_AT_PORT:
                life.fuse = self._fuse()
            case Fault.STOPPED:
                world.struck(kind)
                life.stop()
            case Fault.PAUSED:
                world.struck(kind)
                seconds = rng.choice((0.3, 1.5, 3.0)) * world.plan.lease_ttl_s
                if rng.random() < 0.3:
                    life.pause(seconds)
                else:
                    life.lull = self._fuse(seconds)
            case Fault.CLOCK_JUMPED:
                world.struck(kind)
                world.offsets_s[life.process] += rng.choice((-5.0, -0.5, 0.5, 5.0))
            case _:
                self._spoil(kind)

    def _fuse(self, seconds: float = 0.0) -> Fuse:
        rng = self._world.rng
        if rng.random() < 0.5:
            return Fuse(rng.randint(1, 25), seconds=seconds)
        return Fuse(rng.choice((1, 1, 2)), point=rng.choice(_POINTS), seconds=seconds)

    def _crash(self, life: Life) -> None:
        if life.is_up:
            self._world.struck(Fault.CRASH_AT_STEP)
            life.crash()

    def _spoil(self, kind: Fault) -> None:
        conversations = [f"c{number}" for number in range(self._world.plan.conversations)]
        for conversation in conversations:
            key = key_of(conversation)
            if not self._medium.has_snapshot(key):
                continue
            self._world.struck(kind)
            if kind is Fault.SNAPSHOT_DELETED:
                self._medium.delete_snapshot(key)
            else:
                self._medium.damage_snapshot(key, self._world.rng.randrange(1 << 20))
