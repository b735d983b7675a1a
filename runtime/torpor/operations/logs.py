"""Structured logs: stable event names, facts as fields, to standard error; no secrets, no content of conversations.

What libraries log comes along from WARNING up, as events of ours. Their lines below that are never written, whatever
the level, since they show frames and requests as they are.
"""

import contextlib
import logging
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final, Literal, TextIO, cast

import msgspec
import structlog

from torpor.operations.log_stream import Lines, patient
from torpor.operations.redaction import redact

_log = structlog.get_logger()

_SAME_LINE_S: Final = 10.0
"""Within which a line of a library is written once: strangers must not fill the disk that a log is on."""
_LINES_MAX: Final = 256
"""Lines that are remembered."""


class LogOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the server writes to standard error, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written."""
    format: Literal["console", "json"] = "console"
    """``json`` writes one object a line, for machines."""


@contextmanager
def server_logs(options: LogOptions) -> Iterator[None]:
    """The process's logs for the length of a block, in which nobody waits for whoever reads them."""

    def tell(lost: int) -> None:
        _log.warning("log.lines_lost", lines=lost)

    with patient(sys.stderr, on_lost=tell) as lines:
        configure_logs(options, lines=lines)
        yield


def configure_logs(options: LogOptions, *, lines: Lines | None = None) -> None:
    """Set up the process's logs; called once, by the command line, before anything is logged.

    Args: lines: where they go; by default standard error.
    """
    renderer = (
        structlog.processors.JSONRenderer()
        if options.format == "json"
        # The plain formatter shows no local variables, which hold what people said.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redacted,  # behind it, since a traceback's last line says what a library put there
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[options.level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", lines or _Unfailing(sys.stderr))),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    if not any(isinstance(handler, _Libraries) for handler in root.handlers):
        root.addHandler(_Libraries(level=logging.WARNING))


def _redacted(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return redact(event)


class _Libraries(logging.Handler):
    """Makes events of what libraries log; of one that says the same over and over, some."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._said: dict[tuple[str, str, str], list[float]] = {}
        """When each line was written last, and how often it was not since."""

    def emit(self, record: logging.LogRecord) -> None:
        line = (record.name, str(record.msg), str(record.exc_info[0]) if record.exc_info else "")
        last_s, left_out = self._said.get(line, (-_SAME_LINE_S, 0))
        if 0 <= record.created - last_s < _SAME_LINE_S:
            self._said[line][1] += 1
            return
        if len(self._said) >= _LINES_MAX:
            self._said.clear()
        self._said[line] = [record.created, 0]
        self._write(record, {"left_out": int(left_out)} if left_out else {})

    def _write(self, record: logging.LogRecord, fields: dict[str, int]) -> None:
        _log.log(
            record.levelno,
            "library.logged",
            library=record.name,
            why=record.getMessage(),
            exc_info=record.exc_info or None,
            **fields,
        )


class _Unfailing:
    """A stream whose faults are nobody's: a full disk behind the log, or a reader who left, ends no conversation."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError):
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
