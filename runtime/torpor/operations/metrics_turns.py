"""Counts what turns come to, from the records that became durable.

Above: the actors, which tell of every commit. Of what sub-agents commit, their tool calls and folds count; the rest is
no conversation's, and ``metrics_subagents`` counts their ends. A turn's length is taken from its own records, and only
of turns whose beginning this process saw: one that a restart cut in two is counted, and its length is not guessed at.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec

from torpor.conversation.steps import Step
from torpor.operations import metrics_table as table
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import KnownTools
from torpor.operations.metrics_subagents import SubagentNumbers
from torpor.records.ids import ConversationKey
from torpor.records.journal import (
    CompactionFailed,
    ContextReplaced,
    JournalRecord,
    LiveContextFailed,
    LiveContextReplaced,
    MessageReceived,
    SubagentFinished,
    SubagentStarted,
    ToolFinished,
    TurnCancelled,
    TurnFailed,
    TurnFinished,
    TurnPrepared,
    TurnRefused,
)

OUTCOMES: Final[dict[type[JournalRecord], str]] = {
    TurnFinished: "finished",
    TurnCancelled: "cancelled",
    TurnFailed: "failed",
    TurnRefused: "refused",
}
"""The records that end a turn, and how."""
_UNWATCHED: Final = nullcontext()
_MICROSECONDS: Final = 1_000_000


class EventStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Since the start."""

    committed: int


class TurnNumbers:
    """Implements ``turn.contract.Observer``."""

    def __init__(self, metrics: Metrics, *, tools: KnownTools) -> None:
        self._tools = tools
        self._began_us: dict[ConversationKey, int] = {}
        """Of turns that run now."""
        self._messages = metrics.tally(table.MESSAGES)
        self._started = metrics.tally(table.TURNS_STARTED)
        self._ended = metrics.tally(table.TURNS_ENDED)
        self._failures = metrics.tally(table.TURN_FAILURES)
        self._seconds = metrics.spread(table.TURN_SECONDS)
        self._tool_calls = metrics.tally(table.TOOL_CALLS)
        self._compactions = metrics.tally(table.COMPACTIONS)
        self._pauses = metrics.tally(table.COMPACTION_PAUSES)
        self._withdrawn = metrics.tally(table.ATTACHMENTS_WITHDRAWN)
        self._live_contexts = metrics.tally(table.LIVE_CONTEXTS)
        self._subagents = SubagentNumbers(metrics, tools=tools)
        self._events = 0
        metrics.report("events", self.events)

    def events(self) -> EventStatistics:
        """What was committed for clients to see."""
        return EventStatistics(committed=self._events)

    def step(self, key: ConversationKey, step: Step, *, agent: str) -> AbstractContextManager[None]:
        return _UNWATCHED

    def committed(self, key: ConversationKey, records: Sequence[JournalRecord], *, agent: str) -> None:
        self._events += len(records) if not key.is_child else 0
        for record in records:
            if not key.is_child:
                self._count_turn(key, record, agent=agent)
            match record:
                case SubagentStarted():
                    self._subagents.started(key, record)
                case SubagentFinished():
                    self._subagents.finished(key, record)
                case ToolFinished():
                    self._tool_calls.add(self._tools.label(record.name), record.outcome.value)
                case ContextReplaced():
                    self._compactions.add(record.reason.value)
                    if record.withdrawn:
                        self._withdrawn.add(record.why, by=len(record.withdrawn))
                case CompactionFailed():
                    self._compactions.add(record.code)
                    if record.left_alone_until_us:
                        self._pauses.add()
                case LiveContextReplaced():
                    self._live_contexts.add("replaced")
                case LiveContextFailed():
                    self._live_contexts.add(record.code)
                case _:
                    pass

    def interrupted(self, key: ConversationKey) -> None:
        self._began_us.pop(key, None)
        self._subagents.interrupted(key)

    def unrecorded(self, key: ConversationKey, record: SubagentFinished) -> None:
        self._subagents.finished(key, record)

    def _count_turn(self, key: ConversationKey, record: JournalRecord, *, agent: str) -> None:
        match record:
            case MessageReceived():
                self._messages.add(agent)
            case TurnPrepared():
                self._started.add(agent)
                self._began_us[key] = record.at_us
            case TurnFinished() | TurnCancelled() | TurnFailed() | TurnRefused():
                self._end(key, record, agent=agent)
            case _:
                pass

    def _end(self, key: ConversationKey, record: JournalRecord, *, agent: str) -> None:
        self._ended.add(agent, OUTCOMES[type(record)])
        if isinstance(record, TurnFailed):
            self._failures.add(record.code)
        began_us = self._began_us.pop(key, None)
        if began_us is not None:
            self._seconds.observe(max(record.at_us - began_us, 0) / _MICROSECONDS, agent)
