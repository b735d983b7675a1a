"""What the turn loop needs of the actor that runs it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from torpor.conversation.state import ConversationState
from torpor.conversation.steps import Step
from torpor.errors import ToolRefused
from torpor.records.events import Progress
from torpor.records.ids import CallId, ConversationKey
from torpor.records.journal import JournalRecord, SubagentFinished
from torpor.store.contract import Job
from torpor.toolhost.contract import Spawner


class Journal(Protocol):
    """The conversation's one write path; implemented by ``actor.commit``.

    ``add`` folds at once and writes nothing; what was added becomes durable, in order, by the next ``submit`` or
    ``flush`` of anybody. Pure steps only add, so they share the commit of whatever acts next.
    """

    @property
    def state(self) -> ConversationState:
        """Everything added so far, durable or not."""
        ...

    def add(self, *drafts: JournalRecord) -> None:
        """Number and fold records that follow the state."""
        ...

    def add_job(self, job: Job) -> None:
        """Have ``job`` written by the append that carries the record added last, or with nothing left to hand over by
        the next one; all or nothing, and in this order. One of its id that is there already is replaced."""
        ...

    def after_commit(self, effect: Callable[[], None]) -> None:
        """Run ``effect`` once everything added so far is durable and published; never if it does not become so."""
        ...

    async def submit(self) -> None:
        """Hand everything added so far to the store; durable later.

        Raises: StoreError: what was added is not durable, and the state must be loaded anew.
        """
        ...

    async def flush(self) -> None:
        """Return once everything added so far is durable and published. Raises: like ``submit``."""
        ...


class Spawns(Protocol):
    """The sub-agents of one conversation, which may be a sub-agent's own; implemented by ``supervisor.spawn``."""

    def of_call(self, call_id: CallId, *, turn: int, principal: str, report: Callable[[Progress], None]) -> Spawner:
        """Args: report: tells the watching clients how it goes."""
        ...

    def ended_by(self, call_id: CallId) -> tuple[SubagentFinished, ...]:
        """Records of the sub-agents that a call had, now that they have ended; once."""
        ...

    async def settle(self) -> None:
        """Add the end of those that a life before this one left behind."""
        ...


class NoSpawns:
    """Implements ``Spawns`` where nothing can be spawned."""

    def of_call(self, call_id: CallId, *, turn: int, principal: str, report: Callable[[Progress], None]) -> Spawner:
        return self

    async def spawn(self, name: str, task: str) -> str:
        raise ToolRefused("no sub-agent can be started here")

    def ended_by(self, call_id: CallId) -> tuple[SubagentFinished, ...]:
        return ()

    async def settle(self) -> None:
        return


NO_SPAWNS: Final = NoSpawns()


class Observer(Protocol):
    """Is told what conversations do, for numbers and traces; never waits and never raises."""

    def step(self, key: ConversationKey, step: Step, *, agent: str) -> AbstractContextManager[None]:
        """Entered before ``step`` is performed and left after it, in the task that performs it."""
        ...

    def committed(self, key: ConversationKey, records: Sequence[JournalRecord], *, agent: str) -> None:
        """Public records that have just become durable, in order."""
        ...

    def interrupted(self, key: ConversationKey) -> None:
        """Turns of the conversation go on no more for now: they failed, or were cut off."""
        ...

    def unrecorded(self, key: ConversationKey, record: SubagentFinished) -> None:
        """A sub-agent that worked for ``key`` has ended as ``record`` says, of which no journal tells: it was cut off
        together with the one that would write it."""
        ...


class Unobserved:
    """Implements ``Observer``: nobody is told."""

    def step(self, key: ConversationKey, step: Step, *, agent: str) -> AbstractContextManager[None]:
        return _UNWATCHED

    def committed(self, key: ConversationKey, records: Sequence[JournalRecord], *, agent: str) -> None:
        return

    def interrupted(self, key: ConversationKey) -> None:
        return

    def unrecorded(self, key: ConversationKey, record: SubagentFinished) -> None:
        return


_UNWATCHED: Final = nullcontext()
UNOBSERVED: Final = Unobserved()
