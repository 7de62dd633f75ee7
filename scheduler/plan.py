"""From wanted to existing replicas: which to start, drain and kill. Pure; the control loop carries it out.

Live replicas keep serving while others start: a rollout drains the old revision once the new one is ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.wire import ReplicaState


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica as the plan sees it. `in_state_s` is the time since it entered `state`."""

    replica_id: str
    state: ReplicaState
    in_state_s: float
    is_outdated: bool = False
    is_responsive: bool = True
    in_flight: int = 0
    idle_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """How long a replica may take to become ready, and to finish its streams when told to go."""

    start_s: float = 120.0
    drain_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Kill:
    """`reason` goes to the replica's history; `is_failure` counts towards the back-off."""

    replica_id: str
    reason: str
    is_failure: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Start this many of the current revision, drain these (in order), kill those."""

    starts: int = 0
    drains: tuple[str, ...] = ()
    kills: tuple[Kill, ...] = ()


def plan(wanted: int, replicas: Sequence[ReplicaView], deadlines: Deadlines) -> Plan:
    """Bring `replicas` to `wanted` of the current revision.

    A replica that is late to start, late to go or silent is killed, and does not count as existing.
    """
    kills = tuple(k for r in replicas if (k := _overdue(r, deadlines)) is not None)
    killed = {k.replica_id for k in kills}
    alive = [r for r in replicas if r.replica_id not in killed and r.state in _EXISTING]
    current = [r for r in alive if not r.is_outdated]
    outdated = [r for r in alive if r.is_outdated]
    is_replaced = any(r.state is ReplicaState.READY for r in current)
    drains = [*_surplus(current, wanted)]
    if is_replaced or wanted == 0:
        drains += [r.replica_id for r in outdated]
    return Plan(max(wanted - len(current), 0), tuple(drains), kills)


_EXISTING = (ReplicaState.STARTING, ReplicaState.READY)


def _surplus(current: Sequence[ReplicaView], wanted: int) -> tuple[str, ...]:
    """The ones to let go: not ready before ready, then the least busy, the longest idle, the youngest."""
    order = sorted(current, key=_worth)
    return tuple(r.replica_id for r in order[: max(len(current) - wanted, 0)])


def _worth(replica: ReplicaView) -> tuple[bool, int, float, float, str]:
    is_ready = replica.state is ReplicaState.READY
    return (is_ready, replica.in_flight, -replica.idle_s, replica.in_state_s, replica.replica_id)


def _overdue(replica: ReplicaView, deadlines: Deadlines) -> Kill | None:
    name, seconds = replica.replica_id, replica.in_state_s
    if replica.state is ReplicaState.STARTING and seconds > deadlines.start_s:
        return Kill(name, f"not ready after {deadlines.start_s:g} s", is_failure=True)
    if replica.state is ReplicaState.DRAINING and seconds > deadlines.drain_s:
        return Kill(name, f"still there {deadlines.drain_s:g} s after it was told to go", is_failure=False)
    if replica.state is ReplicaState.READY and not replica.is_responsive:
        return Kill(name, "stopped answering", is_failure=True)
    return None
