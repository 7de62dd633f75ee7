"""How long each part of a start took, from the process's first instruction on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Phases:
    """Named durations in the order in which they ended."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._done: list[tuple[str, float]] = []

    def add(self, name: str, seconds: float) -> None:
        self._done.append((name, round(seconds, 4)))

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        start = self._clock()
        yield
        self.add(name, self._clock() - start)

    def as_tuple(self) -> tuple[tuple[str, float], ...]:
        return tuple(self._done)


def process_age_s() -> float:
    """Seconds since this process began: by the kernel's clock on Linux, elsewhere the CPU time it used."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - started_s, 0.0)
    except (OSError, AttributeError):
        return time.process_time()
