"""Our own processes: started with a log, ended politely, then firmly, never outliving their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .identity import ProcessIdentity, identify
from .specs import ChildSpec

_LOG_LIMIT_BYTES = 16 << 20
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ChildService:
    """Starts what `spec` says. Spawn in the main thread: Linux ends a child with the thread it came from."""

    spec: ChildSpec
    env: Mapping[str, str]
    logs: Path
    cwd: Path

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def stop_rank(self) -> int:
        return self.spec.stop_rank

    @property
    def stop_grace_s(self) -> float:
        return self.spec.stop_grace_s

    def spawn(self) -> Child:
        log_path = self.logs / f"{self.spec.name}.log"
        with _open_log(log_path) as log:
            # -P: the working directory must not lend its modules to a process that imports `api` or `common`.
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", self.spec.module],
                env={**self.env, **self.spec.env},
                cwd=self.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return Child(process, log_path)


class Child:
    """A running process, the leader of its own session."""

    def __init__(self, process: subprocess.Popen[bytes], log_path: Path) -> None:
        self._process = process
        self._log_path = log_path
        self.identity: ProcessIdentity = identify(process.pid)

    @property
    def exit_code(self) -> int | None:
        return self._process.poll()

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        """End the whole group: what the process started in its own session goes with it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def last_words(self) -> str:
        lines = self._log_path.read_bytes()[-16384:].decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "nothing")
        return f"{self._log_path} ends with: {last.strip()}"


def die_with_parent() -> None:
    """Ask Linux for a SIGTERM when the thread that made this process ends. Runs between fork and exec."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _open_log(path: Path) -> BinaryIO:
    if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
        path.replace(path.with_suffix(".log.1"))
    path.touch(mode=0o600)
    return path.open("ab")


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
