"""The bounded buffer between the engine's thread and one reader's connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeGuard

from common.wire import Delta, Ended, Failed, Frame


class FrameStream:
    """Frames of one request. The engine's thread puts, the server's takes.

    `limit` bounds what is waiting, counted in tokens and their alternatives; `wake` is for the reader, and
    called on the server's thread when there is something to take.
    """

    def __init__(self, limit: int, wake: Callable[[], None]) -> None:
        self.wake = wake
        self._limit = limit
        self._lock = threading.Lock()
        self._frames: list[Frame] = []
        self._weight = 0
        self._is_over = False

    def put(self, frames: Iterable[Frame]) -> bool:
        """Add frames; false when the reader is too far behind, and must be given up. After the end: no-op."""
        with self._lock:
            for frame in frames:
                if self._is_over:
                    return True
                self._frames.append(frame)
                self._weight += _weight(frame)
                self._is_over = isinstance(frame, Ended | Failed)
            return self._weight <= self._limit

    @property
    def is_over(self) -> bool:
        """Whether the last frame is in: nothing follows, and there is nothing to abort."""
        return self._is_over

    def take(self) -> list[Frame]:
        """All that is waiting, the tokens of a sequence joined into one frame."""
        with self._lock:
            frames, self._frames, self._weight = self._frames, [], 0
        return coalesce(frames)


def coalesce(frames: Sequence[Frame]) -> list[Frame]:
    """Join the deltas of each sequence; the order within a sequence stays, as does the last frame."""
    if len(frames) < 2:
        return list(frames)
    groups: list[list[Frame]] = []
    latest: dict[int, list[Frame]] = {}
    for frame in frames:
        if not _has_tokens(frame):
            groups.append([frame])
        elif frame.index in latest:
            latest[frame.index].append(frame)
        else:
            groups.append([frame])
            latest[frame.index] = groups[-1]
    return [_joined(group) for group in groups]


def _has_tokens(frame: Frame) -> TypeGuard[Delta]:
    """Whether a frame holds generated tokens; the scores of a prompt stand alone."""
    return isinstance(frame, Delta) and frame.completion_tokens > 0


def _joined(group: list[Frame]) -> Frame:
    last = group[-1]
    if len(group) == 1 or not isinstance(last, Delta):
        return last
    deltas = [frame for frame in group if isinstance(frame, Delta)]
    return Delta(
        index=last.index,
        text="".join(d.text for d in deltas),
        ids=tuple(i for d in deltas for i in d.ids),
        completion_tokens=last.completion_tokens,
        logprobs=tuple(p for d in deltas for p in d.logprobs),
    )


def _weight(frame: Frame) -> int:
    if not isinstance(frame, Delta):
        return 0
    return len(frame.ids) + sum(len(p.top) for p in frame.logprobs)
