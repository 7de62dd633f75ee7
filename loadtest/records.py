"""What a load test's clients counted, one JSON line a request: written by locust, read by `reconcile`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtest.stream import Kind


@dataclass(frozen=True, slots=True)
class ClientRecord:
    """`request_id` is the client's own, sent as `x-request-id`. A cut request knows no prompt tokens."""

    request_id: str
    kind: Kind
    received: int
    prompt_tokens: int | None
    reason: str = ""


def append(path: Path, record: ClientRecord) -> None:
    """One write a record, so that records of several greenlets don't mix."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def read(path: Path) -> tuple[ClientRecord, ...]:
    """All records; none when no request was made."""
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    rows = (json.loads(line) for line in lines)
    return tuple(ClientRecord(**{**row, "kind": Kind(row["kind"])}) for row in rows)
