"""A whole platform for end-to-end tests: started by the real command, killed as a power cut would."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from candela.client import Client

_ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Platform:
    """Runs on a data directory of its own, with a short path since sockets lie in it."""

    home: Path
    options: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def start(self) -> None:
        """Up, in the background, on a free port; `facts` holds what it printed."""
        done = self.candela("up", "--detach", "--port", "0", "--json", *self.options)
        assert done.returncode == 0, f"{done.stderr}\n{self.logs()}"
        self.facts = json.loads(done.stdout)

    def stop(self) -> None:
        self.candela("down", "--timeout", "60")

    def candela(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command on this platform."""
        return subprocess.run(
            [sys.executable, "-m", "candela.cli", *arguments],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=280,
            check=False,
            cwd=_ROOT,
            env=self.environment(),
        )

    def environment(self) -> dict[str, str]:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CANDELA_")}
        path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(_ROOT)])
        return {**clean, "CANDELA_DATA_DIR": str(self.home), "PYTHONPATH": path, **self.env}

    def client(self) -> Client:
        return Client(data_dir=self.home)

    @property
    def url(self) -> str:
        return str(self.facts["url"])

    @property
    def api_key(self) -> str:
        return str(json.loads((self.home / "client.json").read_text())["api_key"])

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this platform, the supervisor first."""
        state = json.loads((self.home / "run" / "up.json").read_text())
        supervisor = psutil.Process(state["supervisor"]["pid"])
        return [supervisor, *supervisor.children(recursive=True)]

    def pid_of(self, name: str) -> int:
        state = json.loads((self.home / "run" / "up.json").read_text())
        return int(next(child["identity"]["pid"] for child in state["children"] if child["name"] == name))

    def replica_processes(self) -> list[psutil.Process]:
        return [p for p in self.processes() if _is_replica(p)]

    def kill_everything(self) -> None:
        """SIGKILL for every process, as when the machine loses power."""
        doomed = self.processes()
        for process in doomed:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(doomed, timeout=10.0)

    def logs(self) -> str:
        """The end of every log, for a failed assertion."""
        paths = sorted((self.home / "logs").glob("*.log"))
        return "\n".join(f"--- {p.name}\n{p.read_text(errors='replace')[-3000:]}" for p in paths)


@contextmanager
def running_platform(*options: str, env: dict[str, str] | None = None) -> Iterator[Platform]:
    """Start one, and leave nothing of it behind."""
    platform = Platform(Path(tempfile.mkdtemp(prefix="cnd-")), options, env or {})
    try:
        platform.start()
        yield platform
    finally:
        platform.stop()
        shutil.rmtree(platform.home, ignore_errors=True)


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)


def _is_replica(process: psutil.Process) -> bool:
    try:
        return "batching.replica.main" in process.cmdline()
    except psutil.NoSuchProcess:
        return False
