"""The control loop: observe, decide, act. One thread handles every event in order and owns all state.

Events (a wake, a ready pipe, an exit, an answered poll) are handled at once; ticks serve the steady state.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from common.clock import Clock
from common.wire import ReplicaState
from scheduler.actor import Actor
from scheduler.events import Event, Polled, StopAsked, Woken
from scheduler.jobs import JobKeeper
from scheduler.launchers import BecameReady, Exited
from scheduler.members import Member, Phases
from scheduler.observe import World, observe
from scheduler.reconcile import Reconciler
from scheduler.rules import LoopRules
from scheduler.settlement import CountBook, acknowledgeable, settle_expired
from scheduler.snapshot import DeploymentFigures, Snapshot, TotalsBook, figures_of_replicas
from storage import deployments, leases, ledger
from storage.records import Build, Deployment

log = structlog.get_logger()

_SHORTEST_TICK_S = 0.02
"""Wakes cause a tick at once, but no storm of them causes a storm of ticks."""


class Gauges(Protocol):
    """Where the loop's figures go."""

    def publish(self, snapshot: Snapshot) -> None: ...

    def observe_cold_start(self, phases_s: Phases) -> None: ...


@dataclass(slots=True)
class ControlLoop:
    """`events` is filled from any thread: by launcher, poller, wake listener and signal handlers."""

    actor: Actor
    reconciler: Reconciler
    jobs: JobKeeper
    rules: LoopRules
    gauges: Gauges
    clock: Clock
    events: queue.SimpleQueue[Event]
    _builds: dict[str, Build] = field(default_factory=dict)
    _counts: CountBook = field(default_factory=CountBook)
    _totals: TotalsBook = field(default_factory=TotalsBook)
    _metered_at: float = 0.0

    def run(self) -> None:
        """Handle events and tick until told to stop. What fails is logged and tried again later."""
        next_tick = last_tick = self.clock()
        while True:
            arrived = self._wait(max(next_tick - self.clock(), 0.0))
            for event in arrived:
                if isinstance(event, StopAsked):
                    return
                self.guarded("event_failed", self.handle, event)
            is_urgent = any(isinstance(e, (Woken, Exited, BecameReady)) for e in arrived)
            if is_urgent:
                next_tick = min(next_tick, last_tick + _SHORTEST_TICK_S)
            if self.clock() >= next_tick:
                last_tick = self.clock()
                self.guarded("tick_failed", self.tick, last_tick)
                next_tick = last_tick + self.rules.tick_s

    def handle(self, event: Event) -> None:
        """Take one event in; one about a replica that nobody knows any more is dropped."""
        if isinstance(event, (Woken, StopAsked)):
            return  # a wake is read from Redis by the tick that it causes
        member = self.actor.fleet.get(event.replica_id)
        if member is None:
            return
        if isinstance(event, BecameReady):
            self.actor.ready(member, event)
            self.reconciler.recovered(member)
            self.gauges.observe_cold_start(member.phases_s)
        elif isinstance(event, Exited):
            self._exited(member, event)
        else:
            self._polled(member, event)

    def tick(self, now: float) -> None:
        """One round of observe, decide, act."""
        for member in self.actor.fleet:
            self.guarded("record_failed", self.actor.record, member)
        suspects = self.reconciler.failing_revisions()  # their builds may have been made anew
        known = {i: build for i, build in self._builds.items() if i not in suspects}
        world = observe(self.actor.database, self.actor.redis, known, now)
        self._builds = dict(world.builds)
        for deployment in world.active:
            self.guarded("deployment_failed", self._reconcile, deployment, world, now)
        for deployment in world.deleting:
            self.guarded("deletion_failed", self._delete, deployment, now)
        self._clear_pointless_wakes(world)
        self.guarded("settlement_failed", self._settle, now)
        self._poll()
        self.guarded("jobs_failed", self.jobs.run, now)
        if now - self._metered_at >= self.rules.meter_s:
            self.actor.meter(now)
            self._metered_at = now
        self._publish(world)

    def _wait(self, timeout_s: float) -> list[Event]:
        """At least one event or the timeout; then all that is there."""
        arrived: list[Event] = []
        try:
            arrived.append(self.events.get(timeout=timeout_s) if timeout_s > 0 else self.events.get_nowait())
            while True:
                arrived.append(self.events.get_nowait())
        except queue.Empty:
            return arrived

    def guarded(self, failure: str, act: Callable[..., None], *arguments: object) -> None:
        """The loop's edge: a store that is away, or one broken deployment, must not stop the others."""
        try:
            act(*arguments)
        except Exception:
            log.error(failure, exc_info=True)

    def _exited(self, member: Member, event: Exited) -> None:
        self._totals.retire(member)
        is_failure = event.is_crash or (member.state is ReplicaState.STARTING)
        if is_failure:
            self.reconciler.failed(member, event.detail, event.at, event.failure)
        self.actor.exited(member, event)

    def _polled(self, member: Member, event: Polled) -> None:
        member.is_polling = False
        member.acknowledge = tuple(i for i in member.acknowledge if i not in set(event.acknowledged))
        if event.stats is None:
            member.silent_since = member.silent_since or event.at
            if member.state is ReplicaState.READY:
                log.warning("replica_silent", replica_id=member.replica_id, error=event.error)
            return
        self._counts.note(event.stats)
        self.actor.refresh(member, event.stats, event.at)

    def _reconcile(self, deployment: Deployment, world: World, now: float) -> None:
        held = world.held[deployment.id]
        woken_at = self._unanswered_wake(deployment, world, now)
        self.reconciler.reconcile(deployment, world.builds[deployment.revision_id], held, woken_at, now)

    def _unanswered_wake(self, deployment: Deployment, world: World, now: float) -> float | None:
        """When it was woken, unless a replica is ready or nobody seems to wait any more."""
        woken_at = world.wakes.get(deployment.id)
        if woken_at is None:
            return None
        is_ready = any(m.state is ReplicaState.READY for m in self.actor.fleet.alive(deployment.id))
        is_stale = now - woken_at > self.rules.wake_life_s and world.held[deployment.id] == 0
        if is_ready or is_stale:
            leases.clear_wake(self.actor.redis, deployment.id)
            return None
        return woken_at

    def _delete(self, deployment: Deployment, now: float) -> None:
        self.reconciler.carry_out(deployment, 0, "deployment_deleted", now)
        if not self.actor.fleet.alive(deployment.id):
            with self.actor.database.write() as conn:
                deployments.finish_deletion(conn, deployment.id, now)

    def _clear_pointless_wakes(self, world: World) -> None:
        active = {d.id for d in world.active}
        for deployment_id in world.wakes.keys() - active:
            leases.clear_wake(self.actor.redis, deployment_id)
        known = frozenset(d.id for d in world.deployments)
        self.reconciler.keep_only(known)
        self._totals.keep_only(known)

    def _settle(self, now: float) -> None:
        """Bill for gateways that died; let replicas forget what is settled."""
        database, fleet = self.actor.database, self.actor.fleet
        with database.read() as conn:
            has_expired = bool(ledger.expired_reservations(conn, now, limit=1))
        if has_expired:
            with database.write() as conn:
                settle_expired(conn, self._counts, fleet, now)
        running = {c.request_id for m in fleet.alive() if m.stats is not None for c in m.stats.open}
        with database.read() as conn:
            closed = acknowledgeable(conn, self._counts.counts.keys() - running)
        self._counts.forget(closed)
        for member in fleet.alive():
            if member.stats is not None:
                ended = (c.request_id for c in member.stats.ended)
                member.acknowledge = tuple(i for i in ended if i in closed or i in member.acknowledge)

    def _poll(self) -> None:
        for member in self.actor.fleet.alive():
            is_serving = member.state in (ReplicaState.READY, ReplicaState.DRAINING)
            if is_serving and member.endpoint is not None and not member.is_polling:
                member.is_polling = True
                self.actor.poller.poll(member.replica_id, member.endpoint, member.acknowledge)

    def _publish(self, world: World) -> None:
        figures = []
        for deployment in world.deployments:
            alive = self.actor.fleet.alive(deployment.id)
            memory = self.reconciler.memories.get(deployment.id)
            figures.append(
                DeploymentFigures(
                    deployment_id=deployment.id,
                    tenant_id=deployment.tenant_id,
                    name=deployment.name,
                    desired=0 if memory is None else memory.state.desired,
                    held=world.held[deployment.id],
                    is_panicking=memory is not None and memory.state.panic_since is not None,
                    failures=0 if memory is None else memory.backoff.failures,
                    totals=self._totals.totals(deployment.id, alive),
                    **figures_of_replicas(alive),
                )
            )
        self.gauges.publish(Snapshot(world.at, self.clock() - world.at, tuple(figures)))
