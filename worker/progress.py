"""Progress of an attempt, thinned out to what a person can watch, on one scale from 0 to 1."""

from __future__ import annotations

from collections.abc import Callable

from common.clock import Clock
from worker.protocol import Progress

FETCHED = 0.05
COMPILED = 0.95
_SHORTEST_S = 0.5


class ProgressLog:
    """Writes at each new stage, and otherwise at most every half second."""

    def __init__(self, write: Callable[[Progress], None], clock: Clock) -> None:
        self._write = write
        self._clock = clock
        self._stage: str | None = None
        self._fraction = 0.0
        self._written_at = 0.0

    def say(self, stage: str, fraction: float, message: str = "") -> None:
        """Note progress of the whole attempt. The fraction never goes back."""
        self._fraction = round(min(max(fraction, self._fraction), 1.0), 4)
        if stage == self._stage and self._clock() - self._written_at < _SHORTEST_S:
            return
        self._stage, self._written_at = stage, self._clock()
        self._write(Progress(stage, self._fraction, message))

    def compiling(self, progress: Progress) -> None:
        """Progress of the compile child, which is the middle of the attempt."""
        self.say(progress.stage, FETCHED + (COMPILED - FETCHED) * progress.fraction, progress.message)
