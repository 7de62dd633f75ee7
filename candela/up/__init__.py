"""`candela up`: one command that starts, watches and stops every process of a platform on this machine."""

from .control import PlatformStatus, ProcessStatus, Stopped, platform_status, stop_platform
from .data_dir import DataDir
from .errors import AlreadyRunning, PortTaken, StartFailed
from .settings import DEFAULT_PORT, UpSettings

__all__ = [
    "DEFAULT_PORT",
    "AlreadyRunning",
    "DataDir",
    "PlatformStatus",
    "PortTaken",
    "ProcessStatus",
    "StartFailed",
    "Stopped",
    "UpSettings",
    "platform_status",
    "stop_platform",
]
