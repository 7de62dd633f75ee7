"""`candela up --detach`: the same supervisor in a session of its own, and waiting here until it is ready."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO

from .data_dir import DataDir
from .errors import StartFailed
from .state import UpState, read_state

_MARGIN_S = 30.0


def start_detached(
    arguments: Sequence[str], env: Mapping[str, str], data_dir: DataDir, timeout_s: float
) -> UpState:
    """Run `candela up` with `arguments` in the background; its talk goes to `logs/up.log`.

    Raises:
        StartFailed: it ended, or was not ready in time; carries what it said last.
    """
    data_dir.create()
    log_path = data_dir.logs / "up.log"
    with log_path.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "candela.cli", "up", *arguments],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # the admin key is printed there, and must not lie in a log
            stderr=log,
            start_new_session=True,
        )
        said_from = log.tell()
    deadline = time.monotonic() + timeout_s + _MARGIN_S
    while time.monotonic() < deadline:
        state = read_state(data_dir.state_file)
        if state is not None and state.supervisor.pid == process.pid and state.is_ready:
            return state
        if process.poll() is not None:
            with log_path.open("rb") as said:
                raise StartFailed(_last_line(said, said_from))
        time.sleep(0.03)
    raise StartFailed(f"the platform was not ready in time; see {log_path}")


def _last_line(said: IO[bytes], said_from: int) -> str:
    said.seek(said_from)
    errors = [
        line for line in said.read().decode(errors="replace").splitlines() if line.startswith("error: ")
    ]
    return errors[-1].removeprefix("error: ") if errors else f"it ended at once; see {said.name}"
