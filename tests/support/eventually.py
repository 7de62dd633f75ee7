"""Waiting for what another process does: a test asserts that it came."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(is_so: Callable[[], bool], timeout_s: float = 30.0) -> bool:
    """Whether `is_so` becomes true in time."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True
