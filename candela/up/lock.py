"""One supervisor a data directory: an flock, which the kernel lets go of however the holder ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from .data_dir import DataDir
from .errors import AlreadyRunning
from .state import read_state


@contextmanager
def hold_lock(data_dir: DataDir) -> Iterator[None]:
    """Hold the directory for the block.

    Raises:
        AlreadyRunning: another process holds it.
    """
    descriptor = os.open(data_dir.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            state = read_state(data_dir.state_file)
            raise AlreadyRunning(data_dir.root, state.supervisor.pid if state else None) from None
        yield
    finally:
        os.close(descriptor)


def is_locked(data_dir: DataDir) -> bool:
    """Whether a supervisor holds the directory now."""
    try:
        with hold_lock(data_dir):
            return False
    except AlreadyRunning:
        return True
    except FileNotFoundError:
        return False
