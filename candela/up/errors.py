"""What can go wrong while starting, stopping or watching the platform's processes."""

from __future__ import annotations

from pathlib import Path

from common.errors import Conflict, PlatformError


class StartFailed(PlatformError):
    """The platform could not be started; `str()` says what to do."""

    code = "start_failed"


class AlreadyRunning(Conflict):
    code = "already_running"

    def __init__(self, data_dir: Path, pid: int | None) -> None:
        owner = f"process {pid}" if pid is not None else "another process"
        super().__init__(
            f"{owner} already runs a platform on {data_dir}: stop it with "
            f"`candela down --data-dir {data_dir}`, or pass another --data-dir"
        )
        self.data_dir = data_dir
        self.pid = pid


class PortTaken(StartFailed):
    code = "port_taken"

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"port {port} on {host} is in use: pass --port with a free one (0 picks one)")
        self.port = port
