"""Ends the process when a step hangs: a kernel that never returns cannot be interrupted, only replaced."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

STUCK_EXIT_CODE = 70


def start_watchdog(step_age_s: Callable[[], float | None], limit_s: float, stop: threading.Event) -> None:
    """Look at the step's age on a thread of its own; beyond `limit_s` exit with `STUCK_EXIT_CODE`."""
    arguments = (step_age_s, limit_s, stop)
    threading.Thread(target=_watch, args=arguments, name="watchdog", daemon=True).start()


def _watch(step_age_s: Callable[[], float | None], limit_s: float, stop: threading.Event) -> None:
    while not stop.wait(min(limit_s / 4, 1.0)):
        age_s = step_age_s()
        if age_s is not None and age_s > limit_s:
            log.critical("step_stuck", extra={"facts": {"age_s": round(age_s, 1), "limit_s": limit_s}})
            faulthandler.dump_traceback(file=sys.stderr)
            os._exit(STUCK_EXIT_CODE)
