"""JSON lines on stderr from the standard library alone: importing more would lengthen each cold start."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """One object a record: event, level, time, process, and what `extra={"facts": {...}}` held."""

    def __init__(self, replica_id: str) -> None:
        super().__init__()
        self._replica_id = replica_id

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "event": record.getMessage(),
            "level": record.levelname.lower(),
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "process": "replica",
            "replica_id": self._replica_id,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure_logging(replica_id: str) -> None:
    """Send this process's records to stderr. Call once, in `main.py`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(replica_id))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
