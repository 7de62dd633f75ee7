"""One measurement at a time on a machine: a lock that its kernel frees when the holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)

MEASURE_LOCK = Path("/tmp/candela-measure.lock")
"""The same for every user and process of the machine, whatever their TMPDIR."""
_POLL_S = 0.02
_LONGEST_WAIT_S = 120.0
"""Nobody measures that long in one go: whoever holds it is stuck, or means ill."""


@contextmanager
def measuring(should_stop: Callable[[], bool], path: Path = MEASURE_LOCK) -> Iterator[None]:
    """Hold the machine's clock; waits for whoever has it, unless `should_stop` says to give up waiting.

    Where no lock can be had at all, measuring goes on without one: noise is what the contest is made for.
    """
    file = _open(path)
    if file is None:
        yield
        return
    try:
        give_up_at = time.monotonic() + _LONGEST_WAIT_S
        while not _try_lock(file) and not should_stop():
            if time.monotonic() > give_up_at:
                log.warning("somebody holds %s for too long: measuring without it", path)
                break
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(file)


def _open(path: Path) -> int | None:
    """Another user may have made it: then it is opened as it is, and never followed elsewhere."""
    for flags in (0, os.O_CREAT):
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o644)
        except OSError as error:
            log.debug("no lock at %s: %s", path, error)
        else:
            with contextlib.suppress(OSError):
                os.fchmod(file, 0o644)
            return file
    return None


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.debug("the lock cannot be taken: %s", error)
    return True
