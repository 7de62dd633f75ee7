"""Pid files: how a scheduler finds the replicas that an earlier one left running.

A record names a process by pid and start time, so a pid that was given to another program is never signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

_START_TOLERANCE_S = 0.5


@dataclass(frozen=True, slots=True)
class PidRecord:
    """A replica process: `started_at` is its start as the kernel counts it, in Unix seconds."""

    replica_id: str
    pid: int
    started_at: float
    socket_path: str


def write_pid_record(run_dir: Path, replica_id: str, pid: int, socket_path: str) -> PidRecord:
    """Store the record of a process that runs now; atomic, so that a reader never sees half of it."""
    record = PidRecord(replica_id, pid, psutil.Process(pid).create_time(), socket_path)
    path = _path(run_dir, replica_id)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(record)))
    os.replace(temporary, path)
    return record


def forget(run_dir: Path, record: PidRecord) -> None:
    """Remove a record and the socket of a process that is gone."""
    for path in (_path(run_dir, record.replica_id), Path(record.socket_path)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def read_pid_records(run_dir: Path) -> tuple[PidRecord, ...]:
    """Every readable record; an unreadable one is removed, since nothing can be done with it."""
    records: list[PidRecord] = []
    for path in sorted(run_dir.glob("*.replica.json")):
        try:
            records.append(PidRecord(**json.loads(path.read_text())))
        except (ValueError, TypeError):
            path.unlink(missing_ok=True)
    return tuple(records)


def running_process(record: PidRecord) -> psutil.Process | None:
    """The very process of the record, or None when it is gone (a zombie is gone)."""
    try:
        process = psutil.Process(record.pid)
        same = abs(process.create_time() - record.started_at) <= _START_TOLERANCE_S
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.NoSuchProcess:
        return None


def _path(run_dir: Path, replica_id: str) -> Path:
    return run_dir / f"{replica_id}.replica.json"
