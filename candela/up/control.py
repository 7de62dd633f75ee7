"""`candela down` and `candela status`: look at a platform from outside, and stop it."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum

from .data_dir import DataDir
from .health import is_healthy
from .identity import end_all, is_alive, wait_gone
from .lock import is_locked
from .state import read_state


class Stopped(StrEnum):
    NOT_RUNNING = "not_running"
    STOPPED = "stopped"
    KILLED = "killed"
    LEFTOVERS_ENDED = "leftovers_ended"


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    name: str
    pid: int
    is_alive: bool
    restarts: int


@dataclass(frozen=True, slots=True)
class PlatformStatus:
    """`is_running`: a supervisor holds the directory; `is_healthy`: the gateway answers."""

    is_running: bool
    is_healthy: bool
    url: str | None
    processes: tuple[ProcessStatus, ...]


def stop_platform(data_dir: DataDir, timeout_s: float) -> Stopped:
    """Ask the supervisor to stop everything; after `timeout_s` end it and its children by force.

    Whether a pid still means our process is checked by its start time first.
    """
    state = read_state(data_dir.state_file)
    if state is None:
        return Stopped.NOT_RUNNING
    everyone = [state.supervisor, *(child.identity for child in state.children)]
    if not is_alive(state.supervisor):
        return Stopped.LEFTOVERS_ENDED if end_all(everyone, grace_s=5.0) else Stopped.NOT_RUNNING
    os.kill(state.supervisor.pid, signal.SIGTERM)
    if wait_gone(state.supervisor, timeout_s):
        return Stopped.STOPPED
    end_all(everyone, grace_s=1.0)
    return Stopped.KILLED


def platform_status(data_dir: DataDir) -> PlatformStatus:
    state = read_state(data_dir.state_file)
    if state is None:
        return PlatformStatus(is_locked(data_dir), False, None, ())
    processes = (
        ProcessStatus("supervisor", state.supervisor.pid, is_alive(state.supervisor), 0),
        *(ProcessStatus(c.name, c.identity.pid, is_alive(c.identity), c.restarts) for c in state.children),
    )
    return PlatformStatus(is_locked(data_dir), is_healthy(state.url), state.url, processes)
