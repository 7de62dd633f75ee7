"""A control loop on real stores, with a launcher, a poller and a clock that tests steer."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path

from redis import Redis

from common.wire import ReplicaState
from scheduler.actor import Actor
from scheduler.events import Polled
from scheduler.jobs import JobKeeper
from scheduler.loop import ControlLoop
from scheduler.members import Fleet, Phases
from scheduler.placement import Node
from scheduler.placing import NodeRules
from scheduler.plan import Deadlines
from scheduler.reconcile import Reconciler
from scheduler.rules import LoopRules
from scheduler.snapshot import Snapshot
from storage import deployments, leases, replicas
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.records import Deployment, ScalingPolicy
from tests.support.fake_launcher import FakeLauncher, FakePoller, became_ready, stats
from tests.support.serving import HandClock
from tests.support.storage_rows import a_tenant

GIB = 1 << 30
RULES = LoopRules(
    node=NodeRules(Node(16 * GIB, 8.0), kv_budget_bytes=GIB, cores_per_replica=1.0, overhead_bytes=GIB),
    deadlines=Deadlines(start_s=100.0, drain_s=50.0),
)
SCALABLE = ScalingPolicy(min_replicas=0, max_replicas=3, idle_timeout_s=30.0, target_in_flight=2)


class Figures:
    """Keeps what the loop publishes."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.cold_starts: list[Phases] = []
        self.then: Callable[[], None] = lambda: None

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.then()

    def observe_cold_start(self, phases_s: Phases) -> None:
        self.cold_starts.append(phases_s)


class Stage:
    """A control loop and all that it touches."""

    def __init__(
        self, database: Database, redis: Redis, blobs: DiskBlobs, home: Path, rules: LoopRules
    ) -> None:
        self.database, self.redis, self.blobs = database, redis, blobs
        self.clock, self.launcher, self.poller, self.figures = (
            HandClock(),
            FakeLauncher(),
            FakePoller(),
            Figures(),
        )
        self.enqueued: list[str] = []
        self.actor = Actor(
            database, redis, blobs, self.launcher, self.poller, Fleet(), home / "cache", lease_ttl_s=10.0
        )
        self.loop = ControlLoop(
            actor=self.actor,
            reconciler=Reconciler(self.actor, rules),
            jobs=JobKeeper(database, self.enqueued.append, lambda: 0),
            rules=rules,
            gauges=self.figures,
            clock=self.clock,
            events=queue.SimpleQueue(),
        )
        with database.write() as conn:
            self.tenant = a_tenant(conn)

    def tick(self, after_s: float = 2.0) -> None:
        self.loop.tick(self.clock.turn(after_s))

    def wake(self, deployment: Deployment, held: int = 0) -> None:
        leases.wake(self.redis, deployment.id, self.clock.now)
        leases.set_held_requests(self.redis, "gateway", deployment.id, held, 3600.0, self.clock.now)

    def report(self, replica_id: str, **fields: object) -> None:
        self.loop.handle(Polled(replica_id, stats(replica_id, **fields), (), self.clock.now))

    def started(self, deployment: Deployment) -> str:
        """Wake the deployment and make its replica ready; the replica's id."""
        self.wake(deployment)
        self.tick(0.0)
        replica_id = self.launcher.last
        self.loop.handle(became_ready(replica_id, self.clock.turn(1.0)))
        return replica_id

    def states(self) -> list[ReplicaState]:
        with self.database.read() as conn:
            return [r.state for r in replicas.list_replicas(conn, states=tuple(ReplicaState))]

    def deployment(self, like: Deployment) -> Deployment:
        with self.database.read() as conn:
            return deployments.load_deployment(conn, like.id)
