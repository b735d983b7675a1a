"""What lasts between lives: the store's medium, and how a run opens, reads and spoils it."""

import shutil
import sqlite3
from collections.abc import AsyncIterator, Sequence, Sized
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from tests.simulation.core import Kept, SimCore
from tests.simulation.life import Life
from tests.simulation.ports import SimStore
from tests.support.oracle_evidence import JobLeft, Journal, Row
from torpor.records.ids import ConversationKey
from torpor.store.contract import Store
from torpor.store.in_memory import InMemoryStore
from torpor.store.job_contract import JobState, JobStore
from torpor.store.memory_data import MemoryCore, MemoryData
from torpor.store.options import StoreOptions
from torpor.store.requests import CommitCore
from torpor.store.sqlite.connection import DATABASE_FILE
from torpor.store.sqlite.engine import open_sqlite_inline

_TABLES = ("journal", "snapshots", "receipts", "handles", "jobs", "timers", "titles")


class Medium(Protocol):
    """See the module docstring."""

    has_leases: bool

    def open(self, life: Life) -> AbstractAsyncContextManager[SimStore]:
        """The store of one life."""
        ...

    def cut(self) -> None:
        """A life was cut off: whatever its clean-up does from now on must not be seen."""
        ...

    def holder(self, key: ConversationKey) -> tuple[str, int]:
        """Who may write this conversation, by name and fence; an empty name for nobody."""
        ...

    def journals(self) -> list[Journal]: ...

    def kept(self, key: ConversationKey) -> Kept:
        """What there is of one conversation."""
        ...

    @property
    def job_store(self) -> JobStore:
        """Of the store that was opened last."""
        ...

    def jobs(self) -> list[JobLeft]:
        """That are not done."""
        ...

    def due(self) -> bool:
        """Whether any conversation is marked due."""
        ...

    def has_snapshot(self, key: ConversationKey) -> bool: ...

    def damage_snapshot(self, key: ConversationKey, at: int) -> None: ...

    def delete_snapshot(self, key: ConversationKey) -> None: ...


class MemoryMedium:
    """Implements ``Medium``: one dictionary that the stores of several lives share."""

    has_leases = True

    def __init__(self) -> None:
        self.data = MemoryData()

    @asynccontextmanager
    async def open(self, life: Life) -> AsyncIterator[SimStore]:
        core = SimCore(MemoryCore(self.data), life, holders=self.holder, kept=self.kept)
        group_limit = life.world.plan.group_limit
        async with InMemoryStore(self.data, core=core, latency=core.latency_s, group_limit=group_limit) as store:
            self.job_store: JobStore = store.job_store
            yield SimStore(cast("Store", store), life, notes_leases=False)

    def cut(self) -> None:
        pass  # its core refuses

    def holder(self, key: ConversationKey) -> tuple[str, int]:
        held = self.data.conversations.get(key.root)
        return (held.holder, held.fence) if held else ("", 0)

    def kept(self, key: ConversationKey) -> Kept:
        journal, below = _own(self.journals(), key)
        if (held := self.data.conversations.get(key)) is None:
            return Kept(None, [], below)
        parts: dict[str, Sized | None] = {
            "records": held.batches,
            "snapshot": held.snapshot.data if held.snapshot else None,
            "receipts": held.receipts,
            "blobs": held.handles,
            "jobs": self.data.jobs.of(key),
            "timers": held.timers,
            "sub-agents": below,
        }
        return Kept(journal, [name for name, part in parts.items() if part], below)

    def journals(self) -> list[Journal]:
        return [
            Journal(
                conversation=key.conversation,
                rows=[Row(batch.first_seq, batch.last_seq, batch.last_event, batch.records) for batch in held.batches],
                is_due=held.due_us is not None,
                quarantine=held.quarantine,
                receipts={id_: msgspec.json.decode(receipt) for id_, receipt in held.receipts.items()},
                title=held.title,
                is_archived=held.is_archived,
                epoch=held.epoch,
            )
            for key, held in self.data.conversations.items()
            if held.head.seq
        ]

    def jobs(self) -> list[JobLeft]:
        held = self.data.jobs.list_jobs(tenant=None, owner=None, conversation=None, state=None, limit=1000, after=None)
        return [
            JobLeft(conversation=job.key.conversation, id=job.id, is_dead=job.state is JobState.DEAD) for job in held
        ]

    def due(self) -> bool:
        return any(held.due_us is not None for key, held in self.data.conversations.items() if not key.is_child)

    def has_snapshot(self, key: ConversationKey) -> bool:
        held = self.data.conversations.get(key)
        return held is not None and held.snapshot is not None

    def damage_snapshot(self, key: ConversationKey, at: int) -> None:
        held = self.data.conversations[key]
        assert held.snapshot is not None
        data = bytearray(held.snapshot.data)
        data[at % len(data)] ^= 1
        held.snapshot = msgspec.structs.replace(held.snapshot, data=bytes(data))

    def delete_snapshot(self, key: ConversationKey) -> None:
        self.data.conversations[key].snapshot = None


class SqliteMedium:
    """Implements ``Medium``: a database file, of which one life at a time holds the directory.

    A life that is cut off leaves its directory as it lies: the next one opens a copy, made at that moment.
    """

    has_leases = False

    def __init__(self, root: Path) -> None:
        self._root = root
        self._copies = 0
        self._directory = root / "0"
        self._holder = ("", 0)

    @asynccontextmanager
    async def open(self, life: Life) -> AsyncIterator[SimStore]:
        core: SimCore | None = None

        def wrap(inner: CommitCore) -> CommitCore:
            nonlocal core
            core = SimCore(inner, life, holders=self.holder, kept=self.kept)
            return core

        # Nothing here is to survive a power cut, and flushing would cost most of the time.
        options = StoreOptions(synchronous="normal", group_limit=life.world.plan.group_limit)
        latency = lambda: core.latency_s() if core else 0.0  # noqa: E731  # the core is made while the store opens
        async with open_sqlite_inline(self._directory, options=options, latency=latency, wrap_core=wrap) as store:
            self._holder = (life.holder, self._boot())
            self.job_store: JobStore = store.job_store
            yield SimStore(cast("Store", store), life, notes_leases=True)

    def cut(self) -> None:
        self._copies += 1
        before, self._directory = self._directory, self._root / str(self._copies)
        self._directory.mkdir(mode=0o700)
        for suffix in ("", "-wal"):
            path = before / (DATABASE_FILE + suffix)
            if path.exists():
                shutil.copyfile(path, self._directory / path.name)

    def holder(self, key: ConversationKey) -> tuple[str, int]:
        return self._holder

    def kept(self, key: ConversationKey) -> Kept:
        journal, below = _own(self.journals(), key)
        whose = (
            "WHERE number NOT IN (SELECT number FROM conversations UNION SELECT 0)"  # the journal keeps emptied rows
        )
        names = [table for table in _TABLES if self._query(f"SELECT 1 FROM {table} {whose}")]
        names += ["sub-agents"] if below else []
        return Kept(journal, ["row", *names] if journal else names, below)

    def journals(self) -> list[Journal]:
        found = []
        conversations = (
            "SELECT number, conversation, due_us, quarantine, coalesce(titles.title, ''), is_archived, epoch"
            " FROM conversations LEFT JOIN titles USING (number) ORDER BY number"
        )
        rows = "SELECT first_seq, last_seq, last_event, records FROM journal WHERE number = ? ORDER BY first_seq"
        receipts = "SELECT message_id, receipt FROM receipts WHERE number = ?"
        for number, conversation, due_us, quarantine, title, is_archived, epoch in self._query(conversations):
            batches = [Row(first, last, event, text.encode()) for first, last, event, text in self._query(rows, number)]
            index = {id_: msgspec.json.decode(receipt) for id_, receipt in self._query(receipts, number)}
            found.append(
                Journal(
                    conversation=conversation,
                    rows=batches,
                    is_due=due_us is not None,
                    quarantine=quarantine,
                    receipts=index,
                    title=title,
                    is_archived=bool(is_archived),
                    epoch=epoch,
                )
            )
        return found

    def jobs(self) -> list[JobLeft]:
        found = self._query("SELECT conversation, id, jobs.state FROM jobs JOIN conversations USING (number)")
        return [JobLeft(conversation=name, id=id_, is_dead=state == "dead") for name, id_, state in found]

    def due(self) -> bool:
        return bool(
            self._query("SELECT 1 FROM conversations WHERE due_us IS NOT NULL AND instr(conversation, '/') = 0 LIMIT 1")
        )

    def has_snapshot(self, key: ConversationKey) -> bool:
        return bool(self._snapshot(key))

    def damage_snapshot(self, key: ConversationKey, at: int) -> None:
        ((number, data),) = self._snapshot(key)
        spoilt = bytearray(data)
        spoilt[at % len(spoilt)] ^= 1
        self._query("UPDATE snapshots SET data = ? WHERE number = ?", bytes(spoilt), number)

    def delete_snapshot(self, key: ConversationKey) -> None:
        ((number, _),) = self._snapshot(key)
        self._query("DELETE FROM snapshots WHERE number = ?", number)

    def _snapshot(self, key: ConversationKey) -> list[Any]:
        statement = (
            "SELECT snapshots.number, data FROM snapshots JOIN conversations"
            " ON conversations.number = snapshots.number WHERE conversation = ?"
        )
        return self._query(statement, key.conversation)

    def _boot(self) -> int:
        return int(self._query("SELECT number FROM boot")[0][0])

    def _query(self, statement: str, *values: object) -> list[Any]:
        path = self._directory / DATABASE_FILE
        if not path.exists():
            return []
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            return db.execute(statement, values).fetchall()


def _own(journals: Sequence[Journal], key: ConversationKey) -> tuple[Journal | None, list[Journal]]:
    """That of a conversation, and those of its sub-agents."""
    own = next((journal for journal in journals if journal.conversation == key.conversation), None)
    beginning = key.child("").conversation
    return own, [journal for journal in journals if journal.conversation.startswith(beginning)]
