"""How the engine's log reaches people and machines: on standard error, readable on a terminal, JSON lines elsewhere."""

import logging
import sys
from typing import Final

import structlog

LEVELS: Final = ("debug", "info", "warning", "error")


def configure_logs(level: str | None) -> None:
    """Set up the log of this process; without a level it is quiet on a terminal and tells lifecycles elsewhere."""
    on_terminal = sys.stderr.isatty()
    chosen = level if level is not None else "warning" if on_terminal else "info"
    render: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer()]
        if on_terminal
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[chosen.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
