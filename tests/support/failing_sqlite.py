"""A SQLite connection on which a medium can be made to fail, as the library reports it."""

import sqlite3
from collections.abc import Callable
from typing import Any

Fault = Callable[[str], sqlite3.Error | None]


def error(code: int, message: str) -> sqlite3.OperationalError:
    """What the library raises for ``code``."""
    exc = sqlite3.OperationalError(message)
    exc.sqlite_errorcode = code
    return exc


def fails_once(word: str, code: int, text: str) -> Fault:
    """A fault at the next statement that begins with ``word``."""
    faults = [error(code, text)]
    return lambda sql: faults.pop() if faults and sql.startswith(word) else None


class FailingConnection(sqlite3.Connection):
    """Raises what ``before`` or ``after`` returns for a statement, instead of doing it or once it is done.

    A failure before a commit takes the transaction back first, as the library does.
    """

    before: Fault = staticmethod(lambda sql: None)
    after: Fault = staticmethod(lambda sql: None)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if exc := self.before(sql):
            if self.in_transaction:
                super().execute("ROLLBACK")
            raise exc
        cursor = super().execute(sql, parameters)
        if exc := self.after(sql):
            raise exc
        return cursor
