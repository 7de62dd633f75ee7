"""One deployment at a time: from what is wanted to what exists. Remembers samples, back-off and failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import structlog

from common.errors import PlatformError
from common.wire import ReplicaState, StartFailed
from scheduler import autoscaler
from scheduler.actor import Actor
from scheduler.autoscaler import Decision, Sample, ScalingConfig, ScalingState
from scheduler.backoff import Backoff
from scheduler.members import Member, sample_of
from scheduler.observe import serving_shape
from scheduler.placement import Idler, check_fits_alone, fits, who_gives_way
from scheduler.placing import Sizing, size
from scheduler.plan import plan
from scheduler.rules import LoopRules
from storage import deployments
from storage.records import SERVED_BEFORE, Build, Deployment, Failure

log = structlog.get_logger()


@dataclass(slots=True)
class Memory:
    """What is remembered of one deployment between ticks; failures, of its current build only."""

    state: ScalingState
    revision_id: str
    artifact_prefix: str
    minimum: int = 0
    samples: tuple[Sample, ...] = ()
    backoff: Backoff = field(default_factory=Backoff)
    decision: Decision | None = None
    failure: Failure | None = None
    is_sized: bool = False

    @property
    def has_demand(self) -> bool:
        return bool(self.samples) and self.samples[-1].demand > 0


@dataclass(slots=True)
class Reconciler:
    """Decides and acts for each deployment."""

    actor: Actor
    rules: LoopRules
    memories: dict[str, Memory] = field(default_factory=dict)

    def reconcile(
        self, deployment: Deployment, build: Build, held: int, woken_at: float | None, now: float
    ) -> None:
        """Sample, decide, plan and carry out. `woken_at` is the time of an unanswered wake."""
        memory = self._memory(deployment, build, now)
        members = self.actor.fleet.alive(deployment.id)
        config = self._config(deployment)
        sample = sample_of(members, held, woken_at is not None, now)
        memory.samples = (*autoscaler.trim(memory.samples, config, now), sample)
        decision = autoscaler.decide(config, memory.state, memory.samples, now)
        memory.state, memory.decision = decision.state, decision
        starts = self.carry_out(deployment, decision.replicas, decision.reason, now)
        if starts > 0 and memory.backoff.may_start(now):
            self._start(deployment, build, starts, now if woken_at is None else woken_at, now)
        self.actor.note_failure(deployment, memory.failure, now)

    def carry_out(self, deployment: Deployment, wanted: int, reason: str, now: float) -> int:
        """Kill and drain as planned; how many replicas are missing."""
        members = {m.replica_id: m for m in self.actor.fleet.alive(deployment.id)}
        patience_s = self.rules.poll_patience_s
        views = [m.view(deployment.revision_id, now, patience_s) for m in members.values()]
        found = plan(wanted, views, self.rules.deadlines)
        for kill in found.kills:
            if kill.is_failure:
                self.failed(members[kill.replica_id], kill.reason, now)
            self.actor.kill(members[kill.replica_id], kill.reason, now)
        for replica_id in found.drains:
            is_replaced = wanted > 0 and members[replica_id].revision_id != deployment.revision_id
            self.actor.drain(members[replica_id], "replaced" if is_replaced else reason, now)
        return found.starts

    def failed(self, member: Member, detail: str, now: float, cause: StartFailed | None = None) -> None:
        """A replica ended badly: slow down its revision's next starts, and remember why.

        `cause` is what it said itself.
        """
        memory = self._memory_of(member)
        if memory is None:
            return
        ready_for_s = None if member.ready_at is None else now - member.ready_at
        memory.backoff = memory.backoff.after_failure(now, ready_for_s)
        if cause is not None:
            memory.failure = Failure(cause.code, cause.message)
        elif ready_for_s is None:
            memory.failure = Failure("replica_start_failed", f"a starting replica failed: {detail}")
        else:
            memory.failure = Failure(SERVED_BEFORE, f"a replica failed: {detail}")

    def recovered(self, member: Member) -> None:
        """A replica became ready: nothing is wrong any more. The back-off stays until one served for long."""
        if (memory := self._memory_of(member)) is not None:
            memory.failure = None

    def failing_revisions(self) -> frozenset[str]:
        """Revisions with which something is wrong."""
        return frozenset(m.revision_id for m in self.memories.values() if m.failure is not None)

    def keep_only(self, deployment_ids: frozenset[str]) -> None:
        """Forget deployments that no longer exist."""
        self.memories = {i: m for i, m in self.memories.items() if i in deployment_ids}

    def _memory(self, deployment: Deployment, build: Build, now: float) -> Memory:
        memory = self.memories.get(deployment.id)
        if memory is None:
            existing = [m for m in self.actor.fleet.alive(deployment.id) if m.endpoint is not None]
            state = autoscaler.initial_state(len(existing), now)
            memory = Memory(state, deployment.revision_id, build.artifact_prefix)
            self.memories[deployment.id] = memory
        served = (deployment.revision_id, build.artifact_prefix)
        if (memory.revision_id, memory.artifact_prefix) != served:  # what failed is not served any more
            memory.revision_id, memory.artifact_prefix = served
            memory.backoff, memory.failure, memory.is_sized = Backoff(), None, False
        memory.minimum = deployment.policy.min_replicas
        return memory

    def _memory_of(self, member: Member) -> Memory | None:
        """The memory that a replica's fate belongs to; None when another revision took its place."""
        memory = self.memories.get(member.deployment_id)
        return memory if memory is not None and memory.revision_id == member.revision_id else None

    def _config(self, deployment: Deployment) -> ScalingConfig:
        policy = deployment.policy
        return replace(
            self.rules.scaling,
            min_replicas=policy.min_replicas,
            max_replicas=policy.max_replicas,
            target_in_flight=float(policy.target_in_flight),
            idle_timeout_s=policy.idle_timeout_s,
        )

    def _start(self, deployment: Deployment, build: Build, count: int, wanted_at: float, now: float) -> None:
        """Start up to `count` replicas, as far as there is room; one at a time while they fail."""
        memory = self.memories[deployment.id]
        try:
            sizing = self._sizing(deployment, build, memory, now)
            check_fits_alone(self.rules.node.node, sizing.footprint)
            for _ in range(1 if memory.backoff.failures else count):
                if not self._has_room(deployment, sizing, now):
                    return
                self.actor.start(deployment, build, sizing, wanted_at, now)
        except PlatformError as error:
            memory.failure = Failure(error.code, str(error))
            memory.backoff = memory.backoff.after_failure(now, None)
            log.warning(
                "replica_start_failed", deployment_id=deployment.id, code=error.code, error=str(error)
            )

    def _sizing(self, deployment: Deployment, build: Build, memory: Memory, now: float) -> Sizing:
        """What each replica gets. A ceiling that this node can't keep is lowered in the row."""
        sizing = size(deployment, build, serving_shape(build), self.rules.node)
        if not memory.is_sized and sizing.kv_ceiling_tokens != deployment.kv_ceiling_tokens:
            with self.actor.database.write() as conn:
                deployments.set_kv_ceiling(conn, deployment.id, sizing.kv_ceiling_tokens, now)
        memory.is_sized = True
        return sizing

    def _has_room(self, deployment: Deployment, sizing: Sizing, now: float) -> bool:
        """Whether one more fits now; if not, idle replicas of other deployments are asked to give way."""
        node, fleet = self.rules.node.node, self.actor.fleet
        if fits(node, fleet.footprints(), sizing.footprint) > 0:
            return True
        staying = [m for m in fleet.alive() if m.state is not ReplicaState.DRAINING]
        placed = [m.footprint for m in staying]
        for replica_id in who_gives_way(node, placed, sizing.footprint, self._idlers(staying, deployment.id)):
            member = fleet.get(replica_id)
            assert member is not None, "an idler is a member"
            self.actor.drain(member, "gave_way", now)
        return False

    def _idlers(self, staying: list[Member], wanting_id: str) -> list[Idler]:
        """Ready replicas without work that their own deployments can spare, longest idle first."""
        left = Counter(m.deployment_id for m in staying)
        idlers = []
        for member in sorted(staying, key=lambda m: -m.idle_s):
            memory = self.memories.get(member.deployment_id)
            is_idle = member.state is ReplicaState.READY and member.idle_s >= self.rules.shortest_idle_s
            if memory is None or memory.has_demand or not is_idle or member.deployment_id == wanting_id:
                continue
            if left[member.deployment_id] > memory.minimum:
                left[member.deployment_id] -= 1
                idlers.append(Idler(member.replica_id, member.footprint, member.idle_s))
        return idlers
