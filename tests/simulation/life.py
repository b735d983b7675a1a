"""One run of one process: its engine, its ports, and the cut that ends it.

A crash cuts everything off at once. What the engine's clean-up still tries reaches nobody: after the cut every port
refuses, and one that is awaited never returns.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

import anyio
import anyio.abc
import msgspec

from tests.simulation.faults import Fault
from tests.simulation.world import START_US, World
from tests.support.oracle_evidence import Command as Noted
from torpor.errors import TorporError
from torpor.jobs.runner import JobRunner
from torpor.records.commands import (
    ArchiveConversation,
    CancelTurn,
    Command,
    Hibernate,
    Receipt,
    RefreshLiveContext,
    RenameConversation,
    SendMessage,
    TellContext,
)
from torpor.records.ids import ConversationKey
from torpor.supervisor.directory import StoredDirectory
from torpor.supervisor.forking import ForkConversation
from torpor.supervisor.forks import StoredForks
from torpor.supervisor.registry import Supervisor
from torpor.turn.calibration import Calibration

if TYPE_CHECKING:
    from tests.simulation.ports import SimBus, SimStore

MODEL = "sim"
FALLBACK = "other"
ANSWER_WITHIN_S = 20.0
"""Virtual time for any command: slow commits, a restart with its pause, a grace and a tool's deadline fit in it."""


class Engine:
    """What a life runs."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        directory: StoredDirectory,
        forks: StoredForks,
        runner: JobRunner,
        store: "SimStore",
        bus: "SimBus",
        keep_blobs: Callable[[ConversationKey, Sequence[str]], None],
    ) -> None:
        self.supervisor = supervisor
        self.directory = directory
        self.forks = forks
        self.runner = runner
        self.store = store
        self.bus = bus
        self.keep_blobs = keep_blobs


class DeleteConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What the directory is asked, as clients ask it."""

    principal: str


Question = Command | DeleteConversation | ForkConversation
"""What a process can be asked."""


class OpenEngine(Protocol):
    """Builds a life's engine, not running yet."""

    def __call__(self, life: "Life") -> AbstractAsyncContextManager[Engine]: ...


class Fuse:
    """Burns down with calls of ports: of any, or of those of one name."""

    def __init__(self, calls: int, *, point: str = "", seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._calls = calls
        self._point = point

    def burns_down(self, point: str) -> bool:
        """Whether this call is the last one."""
        self._calls -= self._point in {"", point}
        return self._calls <= 0


class Asked:
    """A command on its way, as its client sees it."""

    def __init__(self, noted: Noted) -> None:
        self.noted = noted
        self.done = anyio.Event()


class Life:
    """See the module docstring; ``run`` it as a task."""

    def __init__(self, world: World, *, process: int, number: int, on_cut: Callable[[], None]) -> None:
        """Args: on_cut: told at the moment of a crash, before any clean-up runs."""
        self.world = world
        self._on_cut = on_cut
        self.process = process
        self.name = f"p{process}.{number}"
        self.holder = f"p{process}" if world.plan.keeps_name else self.name
        self.is_dead = False
        self.engine: Engine | None = None
        self.ended = anyio.Event()
        """Nothing of it reaches anybody any more."""
        self.fuse: Fuse | None = None
        """Where it crashes."""
        self.lull: Fuse | None = None
        """Where it stands still."""
        self.calibration = Calibration()
        """What its engine learns of the tokens of each model."""
        self._paused_until_s = 0.0
        self._paused: list[tuple[float, float]] = []
        self._stop = anyio.Event()
        self._scope = anyio.CancelScope()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._of_directory: anyio.abc.TaskGroup | None = None
        """Connections over which the directory is asked; a server ends them before it."""
        self._asked: dict[Asked, None] = {}

    @property
    def owes(self) -> list[str]:
        """Commands that it has not answered."""
        return [f"{self.name} never answered {asked.noted.kind} {asked.noted.message_id}" for asked in self._asked]

    @property
    def is_up(self) -> bool:
        return self.engine is not None and not self.is_dead

    def now_us(self) -> int:
        """The wall clock of this process."""
        return START_US + round((self.world.now_s() + self.world.offsets_s[self.process]) * 1e6)

    def bytes_per_token(self) -> dict[str, float]:
        """Of a model as records name it, so far."""
        return {"": self.calibration.bytes_per_token(MODEL), FALLBACK: self.calibration.bytes_per_token(FALLBACK)}

    async def run(self, open_engine: OpenEngine, *, on_up: Callable[["Life"], None]) -> None:
        """Live until crashed or stopped."""
        self.world.note(self.name, "started")
        try:
            with self._scope:
                async with open_engine(self) as engine, anyio.create_task_group() as self._tasks:
                    # Jobs speak to conversations, so they end before them.
                    async with (
                        engine.supervisor.running(),
                        engine.directory.running(),
                        engine.runner.running(),
                        anyio.create_task_group() as self._of_directory,
                    ):
                        self.engine = engine
                        on_up(self)
                        await self._stop.wait()
                        self._of_directory.cancel_scope.cancel()
                    self.engine = None
                    self._tasks.cancel_scope.cancel()
        except Exception as exc:  # noqa: BLE001  # a supervisor that fails is a finding, not the end of the run
            if not self.is_dead:
                self.world.unexpected.append(f"{self.name} ended by {exc!r}")
        self._cut()

    def stop(self) -> None:
        """Ask it to leave in good order."""
        self.world.note(self.name, "asked to stop")
        self._stop.set()

    def crash(self) -> None:
        """Cut it off, now."""
        if not self.is_dead:
            self.world.note(self.name, "crashed")
            self._on_cut()
            self._cut()
            self._scope.cancel()

    def _cut(self) -> None:
        self.is_dead = True
        for asked in self._asked:
            asked.noted.is_lost = True
            self._waited(asked.noted)
            asked.done.set()
        self._asked.clear()
        self.ended.set()

    def pause(self, seconds: float) -> None:
        """Stand still; whoever waits for a port waits longer."""
        self.world.note(self.name, "paused", seconds=seconds)
        now_s = self.world.now_s()
        begin_s, end_s = max(now_s, self._paused_until_s), now_s + seconds
        if end_s > begin_s:
            self._paused.append((begin_s, end_s))
            self._paused_until_s = end_s

    def calm(self) -> None:
        """Nothing more happens to it."""
        self.fuse = self.lull = None

    async def gate(self) -> None:
        """Every answer of a port passes here: late when the process stands still, never when it has ended."""
        while self.is_paused and not self.is_dead:  # noqa: ASYNC110  another pause may have begun meanwhile
            await anyio.sleep(self._paused_until_s - self.world.now_s())
        if self.is_dead:
            await anyio.sleep_forever()

    @property
    def is_paused(self) -> bool:
        return self._paused_until_s > self.world.now_s()

    def reach(self, point: str) -> bool:
        """Pass a point at which a crash or a pause may be waiting; whether the process still lives behind it."""
        if self.lull is not None and self.lull.burns_down(point):
            self.world.note(self.name, "lull", point=point)
            self.pause(self.lull.seconds)
            self.lull = None
        if self.fuse is not None and not self.is_dead and self.fuse.burns_down(point):
            self.world.struck(Fault.CRASH_AT_PORT)
            self.world.note(self.name, "fuse", point=point)
            self.crash()
        return not self.is_dead

    def ask(self, key: ConversationKey, command: Question) -> Asked:
        """Send a command over a connection of its own; the answer is noted even when its client gave up waiting."""
        noted = Noted(
            moment=self.world.moment(),
            life=self.name,
            conversation=key.conversation,
            kind=_KINDS.get(type(command), "wake"),
            posted_s=self.world.now_s(),
            allowed_s=ANSWER_WITHIN_S,
        )
        if isinstance(command, SendMessage):
            noted.message_id, noted.text = command.message_id, command.text
            noted.files = [each.blob for each in command.attachments]
        if isinstance(command, RenameConversation):
            noted.text = command.title
        if isinstance(command, ArchiveConversation):
            noted.text = "archived" if command.is_archived else "shown"
        if isinstance(command, ForkConversation):
            noted.message_id, noted.text = command.before, command.into.conversation
        if isinstance(command, Hibernate):
            noted.allowed_s += command.deadline_s
        self.world.evidence.commands.append(noted)
        asked = Asked(noted)
        is_whole = isinstance(command, DeleteConversation | ForkConversation)
        tasks = self._of_directory if is_whole else self._tasks
        if tasks is None or self.engine is None or self.is_dead or (is_whole and self._stop.is_set()):
            noted.is_lost = True
            asked.done.set()
        else:
            self._asked[asked] = None
            tasks.start_soon(self._carry, asked, self.engine, key, command)
        return asked

    async def _carry(self, asked: Asked, engine: Engine, key: ConversationKey, command: Question) -> None:
        await self.gate()
        noted, world = asked.noted, self.world
        try:
            answer = await _answered(engine, key, command)
        except TorporError as exc:
            noted.error, noted.value = exc.code, str(exc)
        else:
            noted.value = _plain(answer)
        if self.is_dead:
            return
        moment = world.moment()
        await self.gate()
        noted.answered = moment
        self._waited(noted)
        world.note(self.name, f"answered {noted.kind}", id=noted.message_id, error=noted.error, value=noted.value)
        self._asked.pop(asked, None)
        asked.done.set()

    def _waited(self, noted: Noted) -> None:
        """Note how long its client waited until now, and how much of that the process stood still."""
        noted.waited_s = self.world.now_s() - noted.posted_s
        until_s = self.world.now_s()
        noted.paused_s = sum(
            max(0.0, min(end_s, until_s) - max(begin_s, noted.posted_s)) for begin_s, end_s in self._paused
        )

    def __repr__(self) -> str:
        return f"<Life {self.name} dead={self.is_dead}>"


async def _answered(engine: Engine, key: ConversationKey, command: Question) -> object:
    match command:
        case DeleteConversation():
            await engine.directory.delete(key, principal=command.principal)
        case ForkConversation():
            await engine.forks.fork(command)
        case SendMessage():
            engine.keep_blobs(key, [each.blob for each in command.attachments])
            return await engine.supervisor.deliver(key, command)
        case _:
            return await engine.supervisor.deliver(key, command)
    return True


_KINDS = {
    SendMessage: "send",
    TellContext: "context",
    RefreshLiveContext: "refresh",
    RenameConversation: "rename",
    ArchiveConversation: "archive",
    DeleteConversation: "delete",
    ForkConversation: "fork",
    CancelTurn: "cancel",
    Hibernate: "hibernate",
}


def _plain(answer: object) -> object:
    if isinstance(answer, Receipt):
        return {"event": answer.event, "at_us": answer.at_us, "position": answer.position}
    return answer
