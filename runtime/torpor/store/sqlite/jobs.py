"""Jobs in the database: changed on the writing connection, found by an index across conversations.

Above: the commit core, which carries out changes within its transaction, and the engine's readers. A claim is of the
start of the process, as every other write is; one of an earlier start is void, so nothing has to be undone at a start.
"""

import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, assert_never

import msgspec

from torpor.records.ids import ConversationKey
from torpor.store.job_contract import JobCounts, JobState, Owner, StoredJob
from torpor.store.requests import ClaimJob, DropJob, HastenJobs, JobRequest, RedoJob, SettleJob
from torpor.store.sqlite.connection import reading, sound_rows

_PLACE: Final = """id = :id AND number =
    (SELECT number FROM conversations WHERE tenant = :tenant AND owner = :owner AND conversation = :conversation)"""
_RUNS: Final = "state = 'running' AND boot = (SELECT number FROM boot)"
_HELD: Final = f"{_RUNS} AND boot = :fence AND token = :token"
# The second way is that of a claim whose answer was lost: asked again, it counts nothing.
_CLAIM: Final = f"""
UPDATE jobs SET
    attempts = attempts + (token = :token), token = :token + 1, state = 'running', boot = :fence
    WHERE {_PLACE} AND :fence = (SELECT number FROM boot)
        AND ((token = :token AND state <> 'dead' AND NOT ({_RUNS})) OR (token = :token + 1 AND {_RUNS}))"""
_SETTLE: Final = f"""
UPDATE jobs SET
    state = :state, due_us = coalesce(:due_us, due_us), error = coalesce(:error, error),
    attempts = attempts - :uncounted, token = token + 1, boot = 0
    WHERE {_PLACE} AND {_HELD}"""
_FINISH: Final = f"DELETE FROM jobs WHERE {_PLACE} AND {_HELD}"
_REDO: Final = f"""
UPDATE jobs SET state = 'waiting', due_us = :now_us, attempts = 0, token = token + 1, boot = 0
    WHERE {_PLACE} AND NOT ({_RUNS})"""
_HASTEN: Final = f"""
UPDATE jobs SET
    due_us = :now_us + iif(attempts = 0, max(0, due_us - added_us), 0), added_us = min(added_us, :now_us)
    WHERE due_us > :now_us AND state <> 'dead' AND NOT ({_RUNS})
        AND (state = 'running' OR added_us > :now_us OR (attempts > 0 AND due_us > :beyond_us))"""
_DROP: Final = f"DELETE FROM jobs WHERE {_PLACE} AND NOT ({_RUNS})"

# A cross join keeps the order of the two: jobs first, by their index, however few conversations there are.
_STATE: Final = f"CASE WHEN state <> 'running' OR ({_RUNS}) THEN state ELSE 'waiting' END"
_SELECT: Final = f"""
SELECT tenant, owner, conversation, id, kind, payload, jobs.due_us, added_us, {_STATE}, attempts, token, error
    FROM jobs CROSS JOIN conversations USING (number)"""
_CLAIMABLE: Final = f"""state <> 'dead' AND NOT ({_RUNS}) AND quarantine = ''
    AND kind IN (SELECT value FROM json_each(:kinds))"""
_DUE: Final = f"""{_SELECT}
    WHERE jobs.due_us <= :now_us AND {_CLAIMABLE} AND (tenant, owner) NOT IN
        (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:passing_over))
    ORDER BY jobs.due_us LIMIT :limit"""
_NEXT: Final = f"""
SELECT jobs.due_us FROM jobs CROSS JOIN conversations USING (number)
    WHERE jobs.due_us > :now_us AND {_CLAIMABLE} ORDER BY jobs.due_us LIMIT 1"""
_FIND: Final = f"{_SELECT.replace('CROSS JOIN', 'JOIN')} WHERE tenant = ? AND owner = ? AND conversation = ? AND id = ?"
_LIST: Final = f"""{_SELECT.replace("CROSS JOIN", "JOIN")}
    WHERE coalesce(tenant = :tenant, TRUE) AND coalesce(owner = :owner, TRUE)
        AND coalesce(conversation = :conversation, TRUE) AND coalesce({_STATE} = :state, TRUE)
        AND coalesce((tenant, owner, conversation, id) >
            (:seen_tenant, :seen_owner, :seen_conversation, :seen_id), TRUE)
    ORDER BY tenant, owner, conversation, id LIMIT :limit"""
_COUNT: Final = f"""
SELECT
    count(*) FILTER (WHERE {_STATE} = 'waiting'),
    count(*) FILTER (WHERE {_STATE} = 'waiting' AND jobs.due_us <= :now_us AND quarantine = ''),
    count(*) FILTER (WHERE {_STATE} = 'running'),
    count(*) FILTER (WHERE {_STATE} = 'dead'),
    min(jobs.due_us) FILTER (WHERE {_STATE} = 'waiting' AND jobs.due_us <= :now_us AND quarantine = '')
    FROM jobs CROSS JOIN conversations USING (number)"""

_ENCODER: Final = msgspec.json.Encoder()


def change(db: sqlite3.Connection, request: JobRequest) -> bool:
    """Carry ``request`` out in whatever transaction is open; False when the job is not as it presumes."""
    key = request.key
    values: dict[str, str | int | None] = {
        "tenant": key.tenant,
        "owner": key.owner,
        "conversation": key.conversation,
        "id": request.id,
    }
    match request:
        case ClaimJob():
            sql = _CLAIM
            values |= {"token": request.token, "fence": request.fence}
        case SettleJob():
            sql = _FINISH if request.state is None else _SETTLE
            values |= {
                "token": request.token,
                "fence": request.fence,
                "state": request.state.value if request.state else None,
                "due_us": request.due_us,
                "error": request.error,
                "uncounted": not request.counts,
            }
        case RedoJob():
            sql = _REDO
            values["now_us"] = request.now_us
        case DropJob():
            sql = _DROP
        case _:
            assert_never(request)
    return db.execute(sql, values).rowcount == 1


def hasten(db: sqlite3.Connection, request: HastenJobs) -> bool:
    """Carry ``request`` out in whatever transaction is open; whether it changed any."""
    return db.execute(_HASTEN, {"now_us": request.now_us, "beyond_us": request.beyond_us}).rowcount > 0


class SqliteJobs:
    """Implements ``store.job_port.JobReads``. Used by one thread at a time."""

    def __init__(self, db: sqlite3.Connection, *, path: Path) -> None:
        self._db = db
        self._path = path

    def due_jobs(
        self, *, now_us: int, limit: int, kinds: Collection[str], passing_over: Collection[Owner]
    ) -> tuple[StoredJob, ...]:
        passed = _ENCODER.encode(sorted(passing_over)).decode()
        return self._found(_DUE, {"now_us": now_us, "limit": limit, "kinds": _array(kinds), "passing_over": passed})

    def next_job_us(self, *, now_us: int, kinds: Collection[str]) -> int | None:
        with reading(self._path):
            found = self._db.execute(_NEXT, {"now_us": now_us, "kinds": _array(kinds)}).fetchone()
        return found[0] if found else None

    def find_job(self, key: ConversationKey, job_id: str) -> StoredJob | None:
        with reading(self._path, key):
            found = self._db.execute(_FIND, (key.tenant, key.owner, key.conversation, job_id)).fetchone()
        return _job(found) if found else None

    def list_jobs(
        self,
        *,
        tenant: str | None = None,
        owner: str | None = None,
        conversation: str | None = None,
        state: JobState | None = None,
        limit: int,
        after: tuple[ConversationKey, str] | None = None,
    ) -> tuple[StoredJob, ...]:
        seen, seen_id = after or (None, None)
        values = {
            "tenant": tenant,
            "owner": owner,
            "conversation": conversation,
            "state": state.value if state else None,
            "seen_tenant": seen.tenant if seen else None,
            "seen_owner": seen.owner if seen else None,
            "seen_conversation": seen.conversation if seen else None,
            "seen_id": seen_id,
            "limit": limit,
        }
        return self._found(_LIST, values)

    def count_jobs(self, *, now_us: int) -> JobCounts:
        with reading(self._path):
            waiting, due, running, dead, oldest_us = self._db.execute(_COUNT, {"now_us": now_us}).fetchone()
        return JobCounts(waiting=waiting, due=due, running=running, dead=dead, oldest_due_us=oldest_us)

    def _found(self, sql: str, values: dict[str, Any]) -> tuple[StoredJob, ...]:
        with reading(self._path):
            return tuple(_job(row) for row in sound_rows(self._db, sql, values, path=self._path))


def _array(texts: Collection[str]) -> str:
    return _ENCODER.encode(sorted(texts)).decode()


def _job(row: tuple[Any, ...]) -> StoredJob:
    tenant, owner, conversation, id_, kind, payload, due_us, added_us, state, attempts, token, error = row
    return StoredJob(
        key=ConversationKey(tenant, owner, conversation),
        id=id_,
        kind=kind,
        payload=msgspec.Raw(payload.encode()),
        due_us=due_us,
        added_us=added_us,
        state=JobState(state),
        attempts=attempts,
        token=token,
        error=error,
    )
