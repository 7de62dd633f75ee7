"""Runs in the forked child before the replica program: limits, then `exec`. Standard library only.

    python -I -S child.py PARENT_PID MEMORY_LIMIT_BYTES OOM_SCORE PROGRAM ARGUMENTS...

A file of its own instead of a `preexec_fn`, because Python code between fork and exec can deadlock when the
parent has threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys

_PR_SET_PDEATHSIG = 1
_OPEN_FILES = 4096


def main(arguments: list[str]) -> None:
    """Replace this process by PROGRAM; exit 125 when the parent is already gone."""
    parent_pid, memory_limit_bytes, oom_score, *program = arguments
    die_with_parent(int(parent_pid))
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    if hasattr(resource, "RLIMIT_DATA"):
        _limit(resource.RLIMIT_DATA, int(memory_limit_bytes))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write(oom_score)
    os.execvp(program[0], program)


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGTERM here when the parent dies, however it dies (Linux; elsewhere a no-op).

    SIGTERM and not SIGKILL: open streams finish and are billed; the next scheduler kills what does not go.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent_pid:
        sys.exit(125)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(kind, (ceiling, ceiling))


if __name__ == "__main__":
    main(sys.argv[1:])
