"""What operators ask for: one function per frame, listed in ``rules``."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from torpor.conversation.text import clean
from torpor.errors import BadFrame, UnknownConversation
from torpor.gateway.auth import Principal
from torpor.gateway.desk import Desk, clamp
from torpor.gateway.pages import following
from torpor.gateway.rows import fitting, job_row, record_row
from torpor.gateway.wire import job_named, journal_named, key_named, owner_named
from torpor.records.commands import Command, Hibernate, Wake
from torpor.records.frames import (
    CountJobs,
    Done,
    DropJob,
    ForgetOwner,
    HibernateConversation,
    InspectConversation,
    ListJobs,
    QuarantineConversation,
    ReleaseConversation,
    Result,
    RetryJob,
    ServerFrame,
    ThawConversation,
)
from torpor.records.ids import ConversationKey
from torpor.store.job_contract import JobState

_SEQ_MAX: Final = 2**62
"""Stores hold 64 bits."""
_REASON_CHARS: Final = 500
"""Of why a conversation is quarantined."""


def inspect(desk: Desk, frame: InspectConversation, by: Principal) -> None:
    key = journal_named(frame.path, by=by)
    limit = clamp(frame.limit, low=1, high=desk.options.list_rows_max)

    async def rows() -> Result:
        journals = desk.ports.journals
        if (row := await journals.describe(key)) is None:
            raise UnknownConversation(frame.path)
        seq = clamp(frame.seq, low=0, high=_SEQ_MAX)
        size_bytes = desk.options.result_bytes_max
        found = await following(journals, key, seq=seq, limit=limit, size_bytes=size_bytes, made=record_row)
        return Result(ref=frame.ref, rows=found, more=seq + len(found) < row.head.seq)

    desk.request_rows(frame, rows)


def hibernate(desk: Desk, frame: HibernateConversation, by: Principal) -> None:
    deadline_s = min(max(0.0, frame.deadline_s), desk.options.hibernate_deadline_max_s)
    _operate(desk, frame, key_named(frame.path, by=by), Hibernate(deadline_s=deadline_s))


def thaw(desk: Desk, frame: ThawConversation, by: Principal) -> None:
    _operate(desk, frame, key_named(frame.path, by=by), Wake())


def quarantine(desk: Desk, frame: QuarantineConversation, by: Principal) -> None:
    key = key_named(frame.path, by=by)
    reason = clean(frame.reason).text.strip()
    if not 0 < len(reason) <= _REASON_CHARS:
        raise BadFrame(f"reason has {len(reason)} characters, expected 1 to {_REASON_CHARS}")

    async def quarantined() -> ServerFrame:
        await desk.must_exist(key, name=frame.path)
        try:
            await desk.ports.conversations.quarantine(key, reason=reason)
        except UnknownConversation:
            raise UnknownConversation(frame.path) from None
        return Done(ref=frame.ref)

    desk.request(frame, quarantined)


def release(desk: Desk, frame: ReleaseConversation, by: Principal) -> None:
    key = key_named(frame.path, by=by)

    async def released() -> ServerFrame:
        await desk.must_exist(key, name=frame.path)
        await desk.ports.conversations.release(key)
        return Done(ref=frame.ref)

    desk.request(frame, released)


def forget(desk: Desk, frame: ForgetOwner, by: Principal) -> None:
    tenant, owner = owner_named(frame.owner, by=by)
    limit = clamp(frame.limit, low=1, high=desk.options.list_rows_max)

    async def forgotten() -> ServerFrame:
        directory = desk.ports.directory
        if frame.dry_run:
            row = await directory.survey(tenant=tenant, owner=owner)
        else:
            row = await directory.forget(tenant=tenant, owner=owner, limit=limit, principal=by.subject)
        return Result(ref=frame.ref, rows=(msgspec.structs.asdict(row),))

    desk.request(frame, forgotten)


def _operate(
    desk: Desk, frame: HibernateConversation | ThawConversation, key: ConversationKey, command: Command
) -> None:
    async def operate() -> ServerFrame:
        await desk.must_exist(key, name=frame.path)
        await desk.ports.conversations.deliver(key, command)
        return Done(ref=frame.ref)

    desk.request(frame, operate)


def list_jobs(desk: Desk, frame: ListJobs, by: Principal) -> None:
    after = job_named(frame.after, by=by) if frame.after else None
    limit = clamp(frame.limit, low=1, high=desk.options.list_rows_max)
    state = _job_state(frame.state)

    async def rows() -> Result:
        jobs = await desk.ports.jobs.listed(state=state, limit=limit + 1, after=after)
        found = fitting(map(job_row, jobs[:limit]), size_bytes=desk.options.result_bytes_max)
        return Result(ref=frame.ref, rows=found, more=len(found) < len(jobs))

    desk.request_rows(frame, rows)


def count_jobs(desk: Desk, frame: CountJobs, by: Principal) -> None:
    async def row() -> ServerFrame:
        return Result(ref=frame.ref, rows=(msgspec.structs.asdict(await desk.ports.jobs.counted()),))

    desk.request(frame, row)


def retry_job(desk: Desk, frame: RetryJob, by: Principal) -> None:
    _change_job(desk, frame, by, desk.ports.jobs.redo)


def drop_job(desk: Desk, frame: DropJob, by: Principal) -> None:
    _change_job(desk, frame, by, desk.ports.jobs.drop)


def _change_job(
    desk: Desk,
    frame: RetryJob | DropJob,
    by: Principal,
    change: Callable[[ConversationKey, str], Awaitable[None]],
) -> None:
    key, job = job_named(frame.path, by=by)

    async def changed() -> ServerFrame:
        await change(key, job)
        return Done(ref=frame.ref)

    desk.request(frame, changed)


def _job_state(name: str) -> JobState | None:
    """Raises: BadFrame: there is no such state."""
    try:
        return JobState(name) if name else None
    except ValueError:
        known = ", ".join(repr(state.value) for state in JobState)
        raise BadFrame(f"jobs have no state {name[:50]!r}, expected one of {known}") from None
