"""The memory plan: one arena, an offset for each value, and a checker that does not share its code."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from compiler.lower.errors import LoweringError

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Interval:
    """A value of `size_bytes` that is live in stages `first` to `last`, both inclusive."""

    name: str
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """`offsets` in bytes, and the whole's size; `peak_live_bytes` is a lower bound on any plan."""

    offsets: Mapping[str, int]
    size_bytes: int
    peak_live_bytes: int


def plan_arena(intervals: tuple[Interval, ...]) -> Arena:
    """Place every value: largest first, each in the lowest gap among those that live beside it."""
    placed: list[tuple[Interval, int]] = []
    for value in sorted(intervals, key=lambda v: (-v.size_bytes, v.first, v.name)):
        size = _rounded(value.size_bytes)
        taken = sorted((at, at + _rounded(v.size_bytes)) for v, at in placed if _overlap(v, value))
        placed.append((value, _lowest_gap(taken, size)))
    offsets = {v.name: at for v, at in placed}
    total = max((at + _rounded(v.size_bytes) for v, at in placed), default=0)
    arena = Arena(offsets, total, peak_live_bytes(intervals))
    check_arena(arena, intervals)
    return arena


def peak_live_bytes(intervals: tuple[Interval, ...]) -> int:
    stages = {v.first for v in intervals}
    return max(
        (sum(_rounded(v.size_bytes) for v in intervals if v.first <= s <= v.last) for s in stages), default=0
    )


def check_arena(arena: Arena, intervals: tuple[Interval, ...]) -> None:
    """Raises `LoweringError` when two live values share a byte, or a value is out of bounds or misaligned."""
    by_stage: dict[int, list[tuple[int, int, str]]] = {}
    for v in intervals:
        start = arena.offsets[v.name]
        if start % ALIGNMENT or start + v.size_bytes > arena.size_bytes:
            raise LoweringError(f"{v.name} is misplaced at {start}")
        for stage in range(v.first, v.last + 1):
            by_stage.setdefault(stage, []).append((start, start + v.size_bytes, v.name))
    for stage, spans in by_stage.items():
        spans.sort()
        for (_, end, a), (start, _, b) in itertools.pairwise(spans):
            if start < end:
                raise LoweringError(f"{a} and {b} overlap in stage {stage}")


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _overlap(a: Interval, b: Interval) -> bool:
    return a.first <= b.last and b.first <= a.last


def _lowest_gap(taken: list[tuple[int, int]], size: int) -> int:
    at = 0
    for start, end in taken:
        if start - at >= size:
            return at
        at = max(at, end)
    return at
