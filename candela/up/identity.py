"""Which process is meant: a pid may have been given to another process since, a pid with a start time not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

_TOLERANCE_S = 1.0  # start times are derived from the boot time, which moves a little when the clock is set


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    pid: int
    started_at: float


def identify(pid: int) -> ProcessIdentity:
    """Raises: `ProcessLookupError` when there is no such process."""
    try:
        return ProcessIdentity(pid, psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        raise ProcessLookupError(f"process {pid} does not exist") from None


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether that very process still runs; a zombie does not."""
    return _find(identity) is not None


def end_all(identities: Sequence[ProcessIdentity], grace_s: float) -> int:
    """End processes that are not our children any more, with what they started; SIGKILL after `grace_s`.

    Returns:
        How many were still alive.
    """
    found = [process for process in map(_find, identities) if process is not None]
    family = [*found, *(child for process in found for child in _children(process))]
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(family, timeout=grace_s)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=5.0)
    return len(found)


def wait_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while is_alive(identity):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _find(identity: ProcessIdentity) -> psutil.Process | None:
    try:
        process = psutil.Process(identity.pid)
        if abs(process.create_time() - identity.started_at) > _TOLERANCE_S:
            return None
        return None if process.status() == psutil.STATUS_ZOMBIE else process
    except psutil.NoSuchProcess:
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
