"""What this process may use of its machine: memory and cores, container limits included."""

from __future__ import annotations

import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def usable_memory_bytes(cgroup: Path = _CGROUP) -> int:
    """The machine's memory, or the container's limit when that is less."""
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_number(cgroup / name) for name in ("memory.max", "memory/memory.limit_in_bytes")]
    return min([installed, *(limit for limit in limits if limit)])


def usable_cores(cgroup: Path = _CGROUP) -> float:
    """The cores this process may run on, or the container's share of CPU time when that is less."""
    cores = float(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1.0
    share = _words(cgroup / "cpu.max")
    if len(share) == 2 and share[0].isdigit() and share[1].isdigit():
        return min(cores, max(int(share[0]) / int(share[1]), 0.1))
    return cores


def _number(path: Path) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].isdigit() else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
