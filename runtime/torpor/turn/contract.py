"""What the turn loop needs of the actor that runs it."""

from collections.abc import Callable
from typing import Protocol

from torpor.conversation.state import ConversationState
from torpor.records.journal import JournalRecord
from torpor.store.contract import Job


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
