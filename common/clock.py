"""The clock as an argument: decisions take `now`, shells own a `Clock`."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds since the Unix epoch, UTC."""


def wall_clock() -> float:
    return time.time()
