"""Waiting for a signal or a time, without polling: what the supervisor's loop sleeps on."""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Self

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})


class SignalWaiter:
    """Catches stop signals and SIGCHLD while its block runs. Main thread only."""

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._handlers = {
            number: signal.signal(number, _ignore) for number in sorted({*STOP_SIGNALS, signal.SIGCHLD})
        }
        self._old_descriptor = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._old_descriptor)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a signal comes or the time is up; whether a stop signal came."""
        ready, _, _ = select.select([self._read], [], [], max(timeout_s, 0.0))
        if not ready:
            return False
        return any(number in STOP_SIGNALS for number in os.read(self._read, 512))


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler must exist for the wakeup descriptor to be written; the loop does the work."""
