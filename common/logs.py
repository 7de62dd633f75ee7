"""Structured logging for processes: one JSON object a line on stderr. Libraries use stdlib
`logging` instead.
"""

from __future__ import annotations

import logging
import sys

import structlog


def configure_logging(process: str, level: str = "INFO") -> None:
    """Send structlog and stdlib records of this process to stderr as JSON lines. Call once, in `main.py`."""
    number = logging.getLevelNamesMapping()[level]
    logging.basicConfig(stream=sys.stderr, level=number, format="%(message)s", force=True)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
