"""What wakes the control loop. Every source puts these into one queue; one thread handles them in order."""

from __future__ import annotations

from dataclasses import dataclass

from common.wire import ReplicaStats
from scheduler.launchers import BecameReady, Exited


@dataclass(frozen=True, slots=True)
class Polled:
    """A replica's answer to a poll; without `stats`, `error` says why there is none."""

    replica_id: str
    stats: ReplicaStats | None
    acknowledged: tuple[str, ...]
    at: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class Woken:
    """A gateway wants this deployment; `at` is when it was heard."""

    deployment_id: str
    at: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The process was told to end."""


Event = BecameReady | Exited | Polled | Woken | StopAsked
