"""What the gateway reads of a conversation, and how it says what that is doing."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from torpor.records.frames import RunStatus
from torpor.records.ids import ConversationKey
from torpor.records.journal import JournalRecord
from torpor.store.contract import DirectoryRow
from torpor.store.job_contract import JobCounts, JobState, StoredJob
from torpor.supervisor.contract import Draining, LiveStatus, RunningTurn


class Journals(Protocol):
    """The reads of ``store.contract.Store``."""

    async def describe(self, key: ConversationKey) -> DirectoryRow | None: ...

    async def epoch(self) -> int: ...

    async def events_after(
        self, key: ConversationKey, *, event: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]: ...

    async def records_after(
        self, key: ConversationKey, *, seq: int, limit: int, size_bytes: int | None = None
    ) -> tuple[JournalRecord, ...]: ...

    async def names_blob(self, key: ConversationKey, handle: str) -> bool: ...

    async def names_bundle(self, key: ConversationKey, handle: str) -> bool: ...


class Bundles(Protocol):
    """The read of ``store.contract.Blobs``."""

    async def get(
        self, key: ConversationKey, handle: str, *, offset: int = 0, size: int | None = None
    ) -> bytes | None: ...


class Jobs(Protocol):
    """What operators may do with jobs; implemented by ``jobs.operated.OperatedJobs``."""

    async def listed(
        self, *, state: JobState | None = None, limit: int, after: tuple[ConversationKey, str] | None = None
    ) -> tuple[StoredJob, ...]: ...

    async def counted(self) -> JobCounts: ...

    async def redo(self, key: ConversationKey, job_id: str) -> None: ...

    async def drop(self, key: ConversationKey, job_id: str) -> None: ...


class Operated(Protocol):
    """The server as operators see it; implemented by ``operations.overview.Overview``."""

    async def statistics(self) -> Mapping[str, msgspec.Struct]:
        """Of each part that has numbers, by its name."""
        ...

    def turns(self) -> tuple[RunningTurn, ...]:
        """Those that run now, the oldest first."""
        ...

    def mcp(self) -> tuple[msgspec.Struct, ...]:
        """How each connection to an MCP server stands, and each such server without one."""
        ...

    def drain(self, *, deadline_s: float | None) -> Draining:
        """Begin to end the server, as ``supervisor.drain`` does it. Args: deadline_s: None for the configured one."""
        ...


def run_status(row: DirectoryRow | None, live: LiveStatus | None) -> RunStatus:
    """The status that belongs to the head of ``row``. A live actor knows best; of one that sleeps, or is only waking,
    the due mark tells whether a turn is under way."""
    if row is None or row.head.seq == 0:
        return RunStatus(state="new")
    if row.quarantine:
        return RunStatus(state="quarantined")
    if live is not None and live.state != "thawing":
        is_running = live.state == "running"
        return RunStatus(state="running" if is_running else "rest", turn=live.turn, waiting=live.waiting)
    return RunStatus(state="rest" if row.due_us is None else "running")
