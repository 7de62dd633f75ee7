"""The replicas under this scheduler, as it remembers them. Touched by the control loop's thread only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from common.wire import ReplicaState, ReplicaStats
from scheduler.autoscaler import Sample
from scheduler.launchers import Endpoint
from scheduler.placement import Footprint
from scheduler.plan import ReplicaView

Phases = tuple[tuple[str, float], ...]


@dataclass(slots=True, eq=False)
class Member:
    """One replica. `recorded` is the state that its row has; the loop brings the row after `state`.

    `endpoint` is None for a replica that an earlier scheduler left: it drains, unpolled. `wanted_at` is when
    it was first wanted (the wake), `reason` why it goes or went.
    """

    replica_id: str
    deployment_id: str
    tenant_id: str
    revision_id: str
    endpoint: Endpoint | None
    footprint: Footprint
    state: ReplicaState
    recorded: ReplicaState
    since: float
    wanted_at: float
    launched_at: float
    ready_at: float | None = None
    gone_at: float | None = None
    reason: str | None = None
    stats: ReplicaStats | None = None
    stats_at: float = 0.0
    silent_since: float | None = None
    is_polling: bool = False
    acknowledge: tuple[str, ...] = ()
    phases_s: Phases = ()

    def enter(self, state: ReplicaState, now: float, reason: str | None = None) -> None:
        """Move on to `state`."""
        self.state = state
        self.since = now
        self.reason = reason or self.reason

    @property
    def in_flight(self) -> int:
        return 0 if self.stats is None else self.stats.running + self.stats.waiting

    @property
    def idle_s(self) -> float:
        return 0.0 if self.stats is None else self.stats.idle_s

    def view(self, revision_id: str, now: float, patience_s: float) -> ReplicaView:
        """As the plan sees it; `revision_id` is the deployment's current one."""
        is_silent = self.silent_since is not None and now - self.silent_since > patience_s
        return ReplicaView(
            replica_id=self.replica_id,
            state=self.state,
            in_state_s=now - self.since,
            is_outdated=self.revision_id != revision_id,
            is_responsive=not is_silent,
            in_flight=self.in_flight,
            idle_s=self.idle_s,
        )


class Fleet:
    """All members by id; those that are gone stay until their row says so."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}

    def add(self, member: Member) -> None:
        self._members[member.replica_id] = member

    def remove(self, replica_id: str) -> None:
        self._members.pop(replica_id, None)

    def get(self, replica_id: str) -> Member | None:
        return self._members.get(replica_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def alive(self, deployment_id: str | None = None) -> tuple[Member, ...]:
        """Those that are not gone, of one deployment or of all."""
        return tuple(
            m
            for m in self._members.values()
            if m.state is not ReplicaState.GONE and deployment_id in (None, m.deployment_id)
        )

    def footprints(self) -> tuple[Footprint, ...]:
        """What is occupied; a draining replica occupies its place until it is gone."""
        return tuple(m.footprint for m in self.alive())


def sample_of(members: tuple[Member, ...], held: int, is_woken: bool, now: float) -> Sample:
    """What the autoscaler is told of a deployment: a wake without a count of held requests stands for one."""
    ready = [m for m in members if m.state is ReplicaState.READY]
    known = [m.stats for m in ready if m.stats is not None]
    return Sample(
        at=now,
        in_flight=sum(s.running for s in known),
        queued=sum(s.waiting for s in known) + max(held, int(is_woken)),
        ready=len(ready),
        starting=sum(m.state is ReplicaState.STARTING for m in members),
        idle_s=min((s.idle_s for s in known), default=None),
    )


def cold_start_phases(member: Member, ready_at: float, own: Phases) -> Phases:
    """Queue and start as seen from here, then the replica's own phases; they add up to wake-to-ready."""
    queue_s = max(member.launched_at - member.wanted_at, 0.0)
    start_s = max(ready_at - member.launched_at - sum(s for _, s in own), 0.0)
    totals: dict[str, float] = {"queue": queue_s, "start": start_s}
    for name, seconds in own:
        totals[name] = totals.get(name, 0.0) + seconds
    return tuple(totals.items())
