"""What operators ask of the server as a whole: one function per frame, listed in ``rules``."""

import msgspec

from torpor.gateway.auth import Principal
from torpor.gateway.desk import Desk, clamp
from torpor.gateway.rows import fitting, room_row, turn_row
from torpor.records.frames import DrainServer, ListMcp, ListTurns, ReadNumbers, Result


def statistics(desk: Desk, frame: ReadNumbers, by: Principal) -> None:
    async def rows() -> Result:
        told = await desk.ports.server.statistics()
        return Result(ref=frame.ref, rows=tuple(room_row(room, told[room]) for room in sorted(told)))

    desk.request_rows(frame, rows)


def turns(desk: Desk, frame: ListTurns, by: Principal) -> None:
    limit = clamp(frame.limit, low=1, high=desk.options.list_rows_max)

    async def rows() -> Result:
        running = desk.ports.server.turns()
        found = fitting(map(turn_row, running[:limit]), size_bytes=desk.options.result_bytes_max)
        return Result(ref=frame.ref, rows=found, more=len(found) < len(running))

    desk.request_rows(frame, rows)


def mcp(desk: Desk, frame: ListMcp, by: Principal) -> None:
    async def rows() -> Result:
        standings = desk.ports.server.mcp()
        found = fitting(map(msgspec.structs.asdict, standings), size_bytes=desk.options.result_bytes_max)
        return Result(ref=frame.ref, rows=found, more=len(found) < len(standings))

    desk.request_rows(frame, rows)


def drain(desk: Desk, frame: DrainServer, by: Principal) -> None:
    given = frame.deadline_s >= 0
    deadline_s = min(frame.deadline_s, desk.options.drain_deadline_max_s) if given else None
    status = desk.ports.server.drain(deadline_s=deadline_s)
    desk.outbox.put(Result(ref=frame.ref, rows=(msgspec.structs.asdict(status),)))
