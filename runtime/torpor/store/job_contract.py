"""What a store promises about jobs: claimed by one at a time, counted before they run, gone only when they are settled.

Above: the runner, which claims and settles; operators, who list, retry and drop. Below: the same backends that keep the
journals, one object for both. A job comes into being by ``Store.append`` and belongs to its conversation; an index
across conversations finds those that are due.

    append ──▶ WAITING ──claim──▶ RUNNING ──finish──▶ gone
                  ▲                  │  │
                  ├──retry, put back─┘  └──bury──▶ DEAD ──redo──▶ WAITING
                  └──the claim lapsed: its process ended without a word

A claim is void once its time is over; embedded, as soon as the process that made it has ended, since the data folder
has one process at a time and each start a number of its own. So a job whose process was killed is claimed again, which
counts as another attempt: at least once, never silently lost. Whoever lost a claim cannot settle it: every settling
compares ``token``, which grows with each change, and so also when an append puts another job in the place of this one.
"""

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, Protocol

import msgspec

from torpor.records.ids import ConversationKey


class JobState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    """Claimed; by whom is the store's affair."""
    DEAD = "dead"
    """A dead letter: not tried again until an operator says so."""


class Owner(NamedTuple):
    """Whose jobs share one allowance."""

    tenant: str
    owner: str


class StoredJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it lies in a store."""

    key: ConversationKey
    id: str
    """Unique in its conversation."""
    kind: str
    payload: msgspec.Raw = msgspec.Raw(b"{}")
    due_us: int
    """When it may run: first as its append said, then as the last attempt left it."""
    added_us: int
    """When its append was written."""
    state: JobState = JobState.WAITING
    attempts: int = 0
    """Times it was claimed, this time included; one that was put back does not count."""
    token: int = 0
    """See the module docstring; begins with the time of the append, so that a name used again is another job."""
    error: str = ""
    """How the last attempt failed, or why it is dead."""

    @property
    def owner(self) -> Owner:
        return Owner(self.key.tenant, self.key.owner)


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs of a store at one moment."""

    waiting: int = 0
    """Due or not."""
    due: int = 0
    """Of those waiting."""
    running: int = 0
    dead: int = 0
    oldest_due_us: int | None = None
    """When the one that has been due for longest became so; None when none is. Its age is the lag."""


class JobStore(Protocol):
    """See the module docstring. Jobs of quarantined conversations wait; nothing here finds them due."""

    async def due_jobs(
        self, *, now_us: int, limit: int, kinds: Collection[str], passing_over: Collection[Owner] = ()
    ) -> tuple[StoredJob, ...]:
        """Those of ``kinds`` that may be claimed at ``now_us``, longest due first; of nobody in ``passing_over``."""
        ...

    async def next_job_us(self, *, now_us: int, kinds: Collection[str]) -> int | None:
        """When the first of those that may not be claimed yet may be; None when there is none."""
        ...

    async def claim_job(self, job: StoredJob, *, holder: str, until_us: int, now_us: int) -> StoredJob:
        """Count one more attempt and make it ``holder``'s; durable when this returns. Repeating it counts once.

        Args: until_us: when the claim lapses, should it not be settled; embedded stores do not need it.
        Raises: JobLost: it is gone, replaced, dead, or somebody else's. Fenced, StoreFull, StoreUnavailable.
        """
        ...

    async def finish_job(self, claimed: StoredJob) -> None:
        """It is done: remove it. Raises: JobLost: the claim is void. StoreFull, StoreUnavailable: repeat it."""
        ...

    async def retry_job(self, claimed: StoredJob, *, due_us: int, error: str) -> None:
        """It failed: try again from ``due_us``. Raises: as ``finish_job``."""
        ...

    async def put_back_job(self, claimed: StoredJob) -> None:
        """It was cut off through no fault of its own: due as before, the attempt not counted. Raises: as
        ``finish_job``."""
        ...

    async def bury_job(self, claimed: StoredJob, *, reason: str, counts: bool = True) -> None:
        """It cannot be done: keep it as a dead letter, this attempt counted or not. Raises: as ``finish_job``."""
        ...

    async def list_jobs(
        self,
        *,
        tenant: str | None = None,
        owner: str | None = None,
        conversation: str | None = None,
        state: JobState | None = None,
        limit: int,
        after: tuple[ConversationKey, str] | None = None,
    ) -> tuple[StoredJob, ...]:
        """In order of key and id, behind ``after``; of quarantined conversations too."""
        ...

    async def count_jobs(self, *, now_us: int) -> JobCounts:
        """Looks at every job there is."""
        ...

    async def find_job(self, key: ConversationKey, job_id: str) -> StoredJob | None:
        """A point read; None when there is none."""
        ...

    async def hasten_jobs(self, *, now_us: int, beyond_us: int) -> bool:
        """Make due what waits for a moment that a clock put which was set back since; whether there was any.

        That is: an attempt that ended with its process, and a further attempt that is due behind ``beyond_us``, now; a
        job that was added later than now, as long from now as it was to wait. What runs is left alone.
        Raises: StoreFull, StoreUnavailable: repeat it.
        """
        ...

    async def redo_job(self, key: ConversationKey, job_id: str, *, now_us: int) -> None:
        """Due now with no attempt counted, dead or waiting.

        Raises: JobLost: there is none, or it runs. StoreFull, StoreUnavailable: repeat it.
        """
        ...

    async def drop_job(self, key: ConversationKey, job_id: str, *, now_us: int) -> None:
        """Remove it, dead or waiting. Raises: as ``redo_job``."""
        ...
