"""Sequences that wait for a place, in order of service: by priority, then first come first served.

A preempted sequence arrived before those that wait, so its rank alone puts it in front again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from batching.engine.sequence import Sequence


class WaitingQueue:
    """A sorted list: new arrivals append, and moving a bounded list's tail costs less than any cleverness."""

    def __init__(self) -> None:
        self._ranks: list[tuple[int, int]] = []
        self._sequences: dict[int, Sequence] = {}

    def __len__(self) -> int:
        return len(self._ranks)

    def __iter__(self) -> Iterator[Sequence]:
        return (self._sequences[number] for _, number in self._ranks)

    def add(self, sequence: Sequence) -> None:
        insort(self._ranks, sequence.rank)
        self._sequences[sequence.number] = sequence

    def remove(self, sequence: Sequence) -> None:
        del self._ranks[bisect_left(self._ranks, sequence.rank)]
        del self._sequences[sequence.number]
