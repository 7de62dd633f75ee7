"""The seam between the control loop and what runs replicas: specifications in, events out.

A launcher starts, signals and watches; deadlines, back-off and records are the control loop's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from common.errors import PlatformError
from common.wire import ReplicaStats, StartFailed


class LaunchFailed(PlatformError):
    """A replica process that could not even be started."""

    code = "launch_failed"


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One replica to run. Going over `memory_limit_bytes` (not counting shared file pages) gets it killed."""

    replica_id: str
    deployment_id: str
    artifact_dir: Path
    tokenizer_dir: Path
    kv_blocks: int
    max_sequences: int
    max_batched_tokens: int
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a replica listens, and the secret that every call to it carries; `pid` where it has one here."""

    socket_path: str
    secret: str = field(repr=False)
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class BecameReady:
    """The replica's first forward pass succeeded; `stats` is what it wrote to its ready pipe."""

    replica_id: str
    stats: ReplicaStats
    at: float


@dataclass(frozen=True, slots=True)
class Exited:
    """The process is gone and reaped. `is_crash` is false when it was told to go and went.

    `failure` is what the replica itself said, when it could name why it would never be ready.
    """

    replica_id: str
    is_crash: bool
    detail: str
    at: float
    failure: StartFailed | None = None


LauncherEvent = BecameReady | Exited
Notify = Callable[[LauncherEvent], None]
"""Takes an event from any thread; must not block."""


class Launcher(Protocol):
    """Runs replicas somewhere. Each launched or adopted replica ends in exactly one `Exited`."""

    def launch(self, spec: ReplicaSpec) -> Endpoint:
        """Start a replica and return at once; `BecameReady` or `Exited` follows.

        Raises:
            LaunchFailed: nothing was started.
        """
        ...

    def terminate(self, replica_id: str) -> None:
        """Ask it to drain and go. Harmless when it is gone."""
        ...

    def kill(self, replica_id: str) -> None:
        """End it now. Harmless when it is gone."""
        ...

    def adopt_leftovers(self) -> tuple[str, ...]:
        """Find replicas of an earlier scheduler that still run, ask each to go, and watch until they do."""
        ...

    def close(self, grace_s: float) -> None:
        """Terminate all, wait at most `grace_s`, kill the rest, and return when none is left."""
        ...
