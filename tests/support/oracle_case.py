"""One conversation's share of the evidence: its journal retold, and when each of its records was durable."""

from bisect import bisect_right
from functools import cached_property

from tests.support.oracle_evidence import (
    Command,
    Commit,
    Delta,
    Evidence,
    Gone,
    Grant,
    Journal,
    ModelCall,
    Published,
    Released,
    SideCall,
    SnapshotPut,
    ToolStep,
    Violation,
    Watch,
)
from tests.support.oracle_story import Story

NEVER = 1 << 62
"""Later than every moment."""
CHILD_MARK = "/"
"""Between the name of a conversation and that of a sub-agent; it has its lease."""


class Case:
    """What is judged at a time."""

    def __init__(self, journal: Journal, evidence: Evidence, *, gone: Gone | None = None) -> None:
        """Args: gone: how it was taken away, so that what it still owed is owed no more."""
        name = self.conversation = journal.conversation
        self.evidence = evidence
        self.journal = journal
        self.gone = gone
        self.told_after: list[str] = []
        """What whoever took it away told of it behind that."""
        self.story = Story(journal)
        self.commits: list[Commit] = [entry for entry in evidence.commits if entry.conversation == name]
        self.snapshots: list[SnapshotPut] = [entry for entry in evidence.snapshots if entry.conversation == name]
        root = name.partition(CHILD_MARK)[0]
        self.grants: list[Grant] = [entry for entry in evidence.grants if entry.conversation == root]
        self.released: list[Released] = [entry for entry in evidence.released if entry.conversation == root]
        self.published: list[Published] = [entry for entry in evidence.published if entry.conversation == name]
        self.deltas: list[Delta] = [entry for entry in evidence.deltas if entry.conversation == name]
        self.model_calls: list[ModelCall] = [entry for entry in evidence.model_calls if entry.conversation == name]
        self.tool_steps: list[ToolStep] = [entry for entry in evidence.tool_steps if entry.conversation == name]
        self.side_calls: list[SideCall] = [entry for entry in evidence.side_calls if entry.conversation == name]
        self.commands: list[Command] = [entry for entry in evidence.commands if entry.conversation == name]
        self.watches: list[Watch] = [entry for entry in evidence.watches if entry.conversation == name]

    def broken(self, kind: str, fact: str) -> Violation:
        return Violation(kind, self.conversation, fact)

    @cached_property
    def _commit_of(self) -> list[Commit | None]:
        """The commit of each record, by seq."""
        found: list[Commit | None] = [None] * (len(self.story.records) + 1)
        for commit in self.commits:
            for seq in range(commit.first_seq, min(commit.last_seq + 1, len(found))):
                found[seq] = commit
        return found

    def commit_of(self, seq: int) -> Commit | None:
        return self._commit_of[seq] if 0 < seq < len(self._commit_of) else None

    def durable(self, seq: int) -> int:
        """When record ``seq`` became durable; ``NEVER`` when it did not, or there is none."""
        commit = self.commit_of(seq)
        return commit.moment if commit else NEVER

    def incarnation_at(self, moment: int) -> int:
        """How often the lease had been granted by ``moment``."""
        return bisect_right(self.grants, moment, key=lambda grant: grant.moment)

    def fence_at(self, moment: int) -> int:
        """The last fence granted before ``moment``."""
        incarnation = self.incarnation_at(moment)
        return self.grants[incarnation - 1].fence if incarnation else 0

    def left_in_order(self, incarnation: int) -> bool:
        """Whether the lease was given back by that incarnation, so that nothing ended it early."""
        return any(self.incarnation_at(entry.moment) == incarnation for entry in self.released)

    def head_at(self, moment: int) -> int:
        """The last record that was durable at ``moment``."""
        index = bisect_right(self.commits, moment, key=lambda commit: commit.moment)
        return self.commits[index - 1].last_seq if index else 0
