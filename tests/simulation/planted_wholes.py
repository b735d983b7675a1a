"""Planted bugs in how conversations stand in lists, are taken away and are begun as copies; see ``planted``."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final
from unittest.mock import patch

import msgspec

from tests.simulation.planting import Planted
from torpor.actor import recorder
from torpor.errors import ClientError
from torpor.records.ids import ConversationKey, MessageId
from torpor.records.journal import ConversationRenamed, JournalRecord, TurnPrepared
from torpor.store.contract import Erased
from torpor.store.memory_data import MemoryCore
from torpor.store.memory_jobs import MemoryJobs
from torpor.store.requests import Erase
from torpor.supervisor import forking
from torpor.supervisor.forking import ForkConversation
from torpor.supervisor.registry import Supervisor


def archived_stays() -> AbstractContextManager[object]:
    """A message leaves a conversation where it was put away."""

    def unarchived(*, principal: str) -> ConversationRenamed:
        return ConversationRenamed(title="", principal=principal)

    return patch.object(recorder, "ConversationUnarchived", unarchived)


def deleted_goes_on() -> AbstractContextManager[object]:
    """Nobody waits until the actor of a conversation has ended before that is taken away."""

    async def ended(self: Supervisor, key: ConversationKey, verdict: ClientError) -> None:
        pass

    return patch.object(Supervisor, "_ended", ended)


def jobs_of_deleted_stay() -> AbstractContextManager[object]:
    """What was to be done for a conversation is done though it is deleted."""
    return patch.object(MemoryJobs, "forget", lambda self, key: None)


def epoch_stays() -> AbstractContextManager[object]:
    """The next conversation of an id counts its events as the one before."""
    erase = MemoryCore._erase

    def forgetful(self: MemoryCore, request: Erase) -> Erased:
        before = self._data.epoch
        erased = erase(self, request)
        self._data.epoch = before
        return erased

    return patch.object(MemoryCore, "_erase", forgetful)


def fork_ends_late() -> AbstractContextManager[object]:
    """A copy goes on to the last turn, whichever message it was asked for by."""
    place = forking._place

    def late(fork: ForkConversation, records: Sequence[JournalRecord]) -> tuple[TurnPrepared, MessageId]:
        last, _ = place(msgspec.structs.replace(fork, before=MessageId("")), records)
        return last, place(fork, records)[1]

    return patch.object(forking, "_place", late)


_TALK: Final = {"clients": 3, "conversations": 1, "sends": 6}
_DELETES: Final = {**_TALK, "deletes": 4}

PLANTED_WHOLES: Final = {
    "archived_stays": Planted(archived_stays, "still_archived", 60, dwells=_TALK),
    "deleted_goes_on": Planted(deleted_goes_on, "after_delete", 100, dwells=_DELETES),
    "jobs_of_deleted_stay": Planted(jobs_of_deleted_stay, "left_behind", 60, dwells=_DELETES),
    "epoch_stays": Planted(epoch_stays, "epoch_reused", 30, dwells=_DELETES),
    "fork_ends_late": Planted(fork_ends_late, "fork_differs", 100, dwells=_TALK),
}
