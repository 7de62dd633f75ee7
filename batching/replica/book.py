"""What each request has cost so far: the ground truth if the gateway that asked for it dies.

The counts of an ended request are kept until they are acknowledged, at most `KEPT_ENDED` of them: beyond
that the oldest is dropped and logged. A report lists the `REPORTED_ENDED` oldest; acknowledging them shows
the next.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace

from common.wire import Delta, Ended, Finished, Frame, GenerateRequest, RequestCounts, Started

log = logging.getLogger(__name__)

KEPT_ENDED = 20_000
REPORTED_ENDED = 1_000


class RequestBook:
    """Written by the engine's thread, read by the server's; every method takes the lock."""

    def __init__(
        self, clock: Callable[[], float], *, kept: int = KEPT_ENDED, reported: int = REPORTED_ENDED
    ) -> None:
        self._clock = clock
        self._kept = kept
        self._reported = reported
        self._lock = threading.Lock()
        self._open: dict[str, RequestCounts] = {}
        self._made: dict[str, dict[int, int]] = {}
        self._ended: OrderedDict[str, RequestCounts] = OrderedDict()
        self._last_end = clock()

    def begin(self, request: GenerateRequest) -> None:
        """A request was taken; nothing is counted until its prompt is worked on."""
        with self._lock:
            self._open[request.request_id] = RequestCounts(request.request_id, request.tenant_id, 0, 0)
            self._made[request.request_id] = {}

    def note(self, request_id: str, frame: Frame) -> None:
        """Take the cumulative counts out of a frame."""
        with self._lock:
            counts = self._open[request_id]
            if isinstance(frame, Started):
                self._open[request_id] = replace(
                    counts, prompt_tokens=frame.prompt_tokens, cached_tokens=frame.cached_tokens
                )
            elif isinstance(frame, Delta | Finished):
                made = self._made[request_id]
                made[frame.index] = frame.completion_tokens
                self._open[request_id] = replace(counts, completion_tokens=sum(made.values()))
            elif isinstance(frame, Ended):
                self._open[request_id] = replace(counts, completion_tokens=frame.completion_tokens)

    def end(self, request_id: str) -> RequestCounts:
        """The request is over: keep its final counts until they are acknowledged."""
        with self._lock:
            counts = self._open.pop(request_id)
            del self._made[request_id]
            self._last_end = self._clock()
            if counts.prompt_tokens or counts.completion_tokens:
                self._ended[request_id] = counts
            if len(self._ended) > self._kept:
                dropped, _ = self._ended.popitem(last=False)
                log.error("ended_counts_dropped", extra={"facts": {"request_id": dropped}})
            return counts

    def acknowledge(self, request_ids: Iterable[str]) -> None:
        """Forget these ended requests; unknown ids are fine."""
        with self._lock:
            for request_id in request_ids:
                self._ended.pop(request_id, None)

    def has_generated(self, request_id: str) -> bool:
        with self._lock:
            return self._open[request_id].completion_tokens > 0

    def restart_idle(self) -> None:
        """Idle time counts from now, if nothing is open."""
        with self._lock:
            self._last_end = self._clock()

    def idle_s(self) -> float:
        """Seconds since the last request ended; 0 while one is open."""
        with self._lock:
            return 0.0 if self._open else max(self._clock() - self._last_end, 0.0)

    def reports(self) -> tuple[tuple[RequestCounts, ...], tuple[RequestCounts, ...]]:
        """Open requests, and the oldest ended ones that were not acknowledged."""
        with self._lock:
            ended = [counts for counts, _ in zip(self._ended.values(), range(self._reported), strict=False)]
            return tuple(self._open.values()), tuple(ended)
