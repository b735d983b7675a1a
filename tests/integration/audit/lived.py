"""A home after a day in it, and what the fake API received meanwhile."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from tests.support.clinic_day import PATH, empty_home, live, opened, refused
from tests.support.command_line import Command


class Lived:
    """A home whose server has ended, and what the fake API received."""

    def __init__(self, home: Path, bodies: list[Any]) -> None:
        self.home = home
        self.data = home / ".torpor"
        self.bodies = bodies
        self.torpor = Command(home)

    def rows(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.data / "torpor.db")) as db:
            return db.execute(sql).fetchall()

    def records(self) -> list[dict[str, Any]]:
        """The journal, read by nothing of the engine."""
        rows = self.rows("SELECT records FROM journal ORDER BY position")
        return [record for (records,) in rows for record in json.loads(records)]


def lived_in(home: Path) -> Lived:
    """After the day; config, skills and tools are empty, and no snapshot is left."""
    bodies = anyio.run(_bodies_of_a_day, home)
    empty_home(home)
    with closing(sqlite3.connect(home / ".torpor" / "torpor.db", isolation_level=None)) as db:
        db.execute("DELETE FROM snapshots")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Lived(home, bodies)


async def _bodies_of_a_day(home: Path) -> list[Any]:
    async with opened(home) as day:
        await live(day)
        await day.client.hibernate(PATH, deadline_s=5.0)
        assert refused(day.api) == []
        return day.api.bodies
