"""What the control loop knows after a tick, as one value: for metrics, and for nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace

from common.wire import ReplicaState, ReplicaStats
from scheduler.members import Member


@dataclass(frozen=True, slots=True)
class Totals:
    """What replicas counted since they started; sums over replicas keep growing when one goes."""

    steps: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    aborts: int = 0

    def plus(self, stats: ReplicaStats) -> Totals:
        names = [f.name for f in fields(self)]
        return replace(self, **{name: getattr(self, name) + getattr(stats, name) for name in names})


@dataclass(slots=True)
class TotalsBook:
    """Totals of replicas that are gone, by deployment."""

    _retired: dict[str, Totals] = field(default_factory=dict)

    def retire(self, member: Member) -> None:
        """Keep the last counts of a replica that has just ended."""
        if member.stats is not None:
            known = self._retired.get(member.deployment_id, Totals())
            self._retired[member.deployment_id] = known.plus(member.stats)

    def totals(self, deployment_id: str, alive: Iterable[Member]) -> Totals:
        """All that the deployment's replicas ever counted under this scheduler."""
        totals = self._retired.get(deployment_id, Totals())
        for member in alive:
            if member.stats is not None:
                totals = totals.plus(member.stats)
        return totals

    def keep_only(self, deployment_ids: Iterable[str]) -> None:
        """Forget deployments that no longer exist."""
        kept = set(deployment_ids)
        self._retired = {i: t for i, t in self._retired.items() if i in kept}


@dataclass(frozen=True, slots=True)
class DeploymentFigures:
    """One deployment at the end of a tick."""

    deployment_id: str
    tenant_id: str
    name: str
    desired: int
    starting: int
    ready: int
    draining: int
    running: int
    waiting: int
    held: int
    kv_blocks_total: int
    kv_blocks_used: int
    is_panicking: bool
    failures: int
    totals: Totals


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All deployments at `at`, and how long the tick took."""

    at: float
    tick_s: float
    deployments: tuple[DeploymentFigures, ...]


def figures_of_replicas(alive: Iterable[Member]) -> dict[str, int]:
    """Replica counts and summed gauges of one deployment, named as in `DeploymentFigures`."""
    members = list(alive)
    known = [m.stats for m in members if m.stats is not None]
    return {
        "starting": sum(m.state is ReplicaState.STARTING for m in members),
        "ready": sum(m.state is ReplicaState.READY for m in members),
        "draining": sum(m.state is ReplicaState.DRAINING for m in members),
        "running": sum(s.running for s in known),
        "waiting": sum(s.waiting for s in known),
        "kv_blocks_total": sum(s.kv_blocks_total for s in known),
        "kv_blocks_used": sum(s.kv_blocks_used for s in known),
    }
