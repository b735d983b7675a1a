"""What sub-agents leave that were cut off before their end was on record: what they cost, and who was cut off as well.

Above: ``spawn``, for those that a crash cut off; the directory, for those whose conversation is erased.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import structlog

from torpor.conversation.budget import added
from torpor.conversation.state import ChildState
from torpor.errors import JournalCorrupt
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    ModelReplied,
    SubagentFinished,
    SubagentStarted,
)
from torpor.records.terms import Outcome, Usage
from torpor.store.contract import Store
from torpor.turn.contract import Observer

ERASED: Final = "erased"
"""The end of one whose conversation was erased; on no record, since none is left."""
_BELOW_MAX: Final = 1_000
"""Sub-agents below one that are looked at."""
_log = structlog.get_logger()


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """Of one sub-agent."""

    rounds: int
    """Model calls that it had answered."""
    usage: Usage
    """Of these, and of those below it."""
    below: tuple[tuple[ConversationKey, ChildState], ...]
    """Those that were cut off with it, each with the key of whom it worked for."""

    def tell(self, observer: Observer, code: str) -> None:
        """That those below it have ended, of which no journal tells any more."""
        for key, cut in self.below:
            observer.unrecorded(key, ended(cut, code))

    def end_of(self, cut: ChildState, code: str) -> SubagentFinished:
        """Of the one that left these."""
        return msgspec.structs.replace(ended(cut, code), rounds=self.rounds, usage=self.usage)


def ended(cut: ChildState, code: str) -> SubagentFinished:
    """The end of one of which nothing else is known."""
    return SubagentFinished(
        turn=cut.turn,
        call_id=cut.call_id,
        name=cut.name,
        child=cut.child,
        told_as=cut.told_as,
        outcome=Outcome.FAILED,
        code=code,
    )


def usage_of(record: JournalRecord) -> Usage | None:
    """Of a model call that ``record`` tells of."""
    return record.usage if isinstance(record, ModelReplied | ContextReplaced | CompactionFailed) else None


async def remains_of(store: Store, key: ConversationKey) -> Remains:
    """Of the sub-agent ``key``. Journals that cannot be read count for nothing. Raises: StoreUnavailable."""
    rounds, usage, open_in = 0, Usage(), dict[ConversationKey, list[ChildState]]()
    for each in (key, *(row.key for row in await store.children(key, limit=_BELOW_MAX))):
        try:
            records: Sequence[JournalRecord] = (await store.load(each, use_snapshot=False)).tail
        except JournalCorrupt as exc:  # what it cost is not worth the conversation that it worked for
            _log.warning("subagent.unreadable", conversation=each.path, why=exc.reason)
            continue
        open_in[each] = _open(records)
        for record in records:
            usage = added(usage, usage_of(record) or Usage())
            rounds += each == key and isinstance(record, ModelReplied)
    return Remains(rounds=rounds, usage=usage, below=tuple(_walked(key, open_in)))


def _open(records: Sequence[JournalRecord]) -> list[ChildState]:
    gone = {record.child for record in records if isinstance(record, SubagentFinished)}
    return [
        ChildState(turn=each.turn, call_id=each.call_id, name=each.name, child=each.child, told_as=each.told_as)
        for each in records
        if isinstance(each, SubagentStarted) and each.child not in gone
    ]


def _walked(
    key: ConversationKey, open_in: dict[ConversationKey, list[ChildState]]
) -> Iterator[tuple[ConversationKey, ChildState]]:
    """Below one whose end is on record, nobody was cut off with this one."""
    for cut in open_in.get(key, ()):
        yield key, cut
        yield from _walked(key.child(cut.child), open_in)
