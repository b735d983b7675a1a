"""Counts what sub-agents come to, from the records of the conversations that they work for.

Above: ``metrics_turns``, which hands the records on. How many are at work is what began and did not end since this
process began to serve their conversation: one whose actor ended has none any more.
Each end is counted once: when its record is durable, or when whoever would have written it is known to be gone.
"""

from typing import Final

import msgspec

from torpor.operations import metrics_table as table
from torpor.operations.metrics import Metrics
from torpor.operations.metrics_ports import KnownTools
from torpor.records.ids import ConversationKey
from torpor.records.journal import SubagentFinished, SubagentStarted

ANSWERED: Final = "answered"
"""Stands for the code of those that did."""


class SubagentStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Now."""

    at_work: int


class SubagentNumbers:
    """Of all conversations of a server."""

    def __init__(self, metrics: Metrics, *, tools: KnownTools) -> None:
        """Args: tools: a sub-agent has the name of its tool."""
        self._tools = tools
        self._at_work: dict[ConversationKey, set[str]] = {}
        """By whom they work for."""
        self._finished = metrics.tally(table.SUBAGENTS_FINISHED)
        self._tokens = metrics.tally(table.SUBAGENT_TOKENS)
        metrics.report("subagents", self.statistics)

    def statistics(self) -> SubagentStatistics:
        return SubagentStatistics(at_work=sum(map(len, self._at_work.values())))

    def started(self, key: ConversationKey, record: SubagentStarted) -> None:
        self._at_work.setdefault(key, set()).add(record.child)

    def finished(self, key: ConversationKey, record: SubagentFinished) -> None:
        name = self._tools.label(record.name)
        self._finished.add(name, record.code or ANSWERED)
        if not key.is_child:  # whose tokens are among those of the one that it works for
            self._tokens.add(name, "input", by=record.usage.input_tokens)
            self._tokens.add(name, "cache_read", by=record.usage.cache_read_input_tokens)
            self._tokens.add(name, "cache_write", by=record.usage.cache_creation_input_tokens)
            self._tokens.add(name, "output", by=record.usage.output_tokens)
        if (at_work := self._at_work.get(key)) is not None:
            at_work.discard(record.child)
            if not at_work:
                del self._at_work[key]

    def interrupted(self, key: ConversationKey) -> None:
        """What runs for it ends with it."""
        below = key.child("").path
        for each in [each for each in self._at_work if each == key or each.path.startswith(below)]:
            del self._at_work[each]
