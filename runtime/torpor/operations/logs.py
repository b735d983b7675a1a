"""Structured logs: stable event names, facts as fields, to standard error; no content of conversations."""

import logging
import sys
from typing import Literal

import msgspec
import structlog


class LogOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the server writes to standard error, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is written."""
    format: Literal["console", "json"] = "console"
    """``json`` writes one object a line, for machines."""


def configure_logs(options: LogOptions) -> None:
    """Set up the process's logs; called once, by the command line, before anything is logged."""
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
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[options.level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
