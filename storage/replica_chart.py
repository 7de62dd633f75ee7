"""Replicas over time, from their state changes. Pure; feeds the dashboard's chart and its replica-seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from common.wire import ReplicaState
from storage.records import ReplicaChange


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """How many replicas were in each state from `at` until the next point."""

    at: float
    starting: int
    ready: int
    draining: int


def replica_counts(changes: Iterable[ReplicaChange], since: float, until: float) -> tuple[ReplicaCounts, ...]:
    """A step line over [since, until): one point at `since` and one wherever a count changed."""
    now_in: dict[str, ReplicaState] = {}
    points = [_point(since, now_in)]
    for change in sorted(changes, key=lambda c: c.at):
        if change.at >= until:
            break
        now_in[change.replica_id] = change.state
        point = _point(max(change.at, since), now_in)
        if points[-1].at == point.at:
            points[-1] = point
        elif _counts(points[-1]) != _counts(point):
            points.append(point)
    return tuple(points)


def ready_seconds(changes: Iterable[ReplicaChange], since: float, until: float) -> float:
    """Replica-seconds within [since, until) spent ready or draining: the billed states."""
    points = replica_counts(changes, since, until)
    ends = [point.at for point in points[1:]] + [until]
    return sum(
        (point.ready + point.draining) * (end - point.at) for point, end in zip(points, ends, strict=True)
    )


def _point(at: float, states: dict[str, ReplicaState]) -> ReplicaCounts:
    count = Counter(states.values())
    return ReplicaCounts(
        at, count[ReplicaState.STARTING], count[ReplicaState.READY], count[ReplicaState.DRAINING]
    )


def _counts(point: ReplicaCounts) -> tuple[int, int, int]:
    return point.starting, point.ready, point.draining
