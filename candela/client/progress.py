"""What an upload tells its caller while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock


class Phase(StrEnum):
    HASHING = "hashing"
    SENDING = "sending"


@dataclass(frozen=True, slots=True)
class UploadProgress:
    phase: Phase
    done_bytes: int
    total_bytes: int


OnProgress = Callable[[UploadProgress], None]


def ignore_progress(progress: UploadProgress) -> None:
    """The default listener."""


class Meter:
    """Adds up bytes from several threads and tells the listener, one call at a time."""

    def __init__(self, phase: Phase, done_bytes: int, total_bytes: int, listener: OnProgress) -> None:
        self._phase, self._done, self._total = phase, done_bytes, total_bytes
        self._listener, self._lock = listener, Lock()
        listener(UploadProgress(phase, done_bytes, total_bytes))

    def add(self, size: int) -> None:
        with self._lock:
            self._done += size
            self._listener(UploadProgress(self._phase, self._done, self._total))
