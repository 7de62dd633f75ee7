"""What runs replicas: the seam (`port`) and child processes (`process`)."""

from scheduler.launchers.port import (
    BecameReady,
    Endpoint,
    Exited,
    Launcher,
    LauncherEvent,
    LaunchFailed,
    Notify,
    ReplicaSpec,
)
from scheduler.launchers.process import ProcessLauncher, ProcessLauncherConfig

__all__ = [
    "BecameReady",
    "Endpoint",
    "Exited",
    "LaunchFailed",
    "Launcher",
    "LauncherEvent",
    "Notify",
    "ProcessLauncher",
    "ProcessLauncherConfig",
    "ReplicaSpec",
]
