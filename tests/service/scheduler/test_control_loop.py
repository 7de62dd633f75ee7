"""The control loop on real stores, with a launcher and a poller that tests steer."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from common.clock import wall_clock
from common.wire import ReplicaState
from scheduler.actor import Actor
from scheduler.events import Polled, StopAsked, Woken
from scheduler.jobs import JobKeeper
from scheduler.loop import ControlLoop
from scheduler.members import Fleet, Phases
from scheduler.placement import Node
from scheduler.placing import NodeRules
from scheduler.plan import Deadlines
from scheduler.reconcile import Reconciler
from scheduler.recovery import recover
from scheduler.rules import LoopRules
from scheduler.snapshot import Snapshot
from storage import deployments, leases, replicas
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.errors import DeploymentNotFound
from storage.ledger import list_ledger
from storage.records import Deployment, DeploymentState, Meter, ScalingPolicy, Tenant
from tests.support.fake_launcher import FakeLauncher, FakePoller, became_ready, crashed, stats, went
from tests.support.serving import HandClock, deployed
from tests.support.storage_rows import NOW, a_tenant

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


@pytest.fixture
def make_stage(database: Database, redis: Redis, blobs: DiskBlobs, short_dir: Path) -> Callable[..., Stage]:
    return lambda rules=RULES: Stage(database, redis, blobs, short_dir, rules)


@pytest.fixture
def stage(make_stage: Callable[..., Stage]) -> Stage:
    return make_stage()


@pytest.fixture
def chat(stage: Stage) -> Deployment:
    return deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)


def other_tenant(stage: Stage) -> Tenant:
    with stage.database.write() as conn:
        return a_tenant(conn, "other")


def test_at_zero_without_demand_nothing_is_started(stage: Stage, chat: Deployment) -> None:
    stage.tick()
    assert stage.launcher.specs == []


def test_a_wake_starts_one_replica(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat)
    stage.tick()
    stage.tick()
    assert [spec.deployment_id for spec in stage.launcher.specs] == [chat.id]


def test_the_replica_gets_what_placement_says(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat)
    stage.tick()
    spec = stage.launcher.specs[0]
    assert (spec.kv_blocks, spec.max_sequences, spec.max_batched_tokens) == (64, 8, 64)
    assert (spec.artifact_dir / "fake.json").exists()


def test_a_ceiling_that_the_budget_cannot_pay_is_lowered_in_the_row(
    make_stage: Callable[..., Stage],
) -> None:
    stage = make_stage(replace(RULES, node=replace(RULES.node, kv_budget_bytes=10 << 10)))
    chat = deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)
    stage.wake(chat)
    stage.tick()
    assert stage.launcher.specs[0].kv_blocks == 10
    assert stage.deployment(chat).kv_ceiling_tokens == 160


def test_a_ready_replica_has_a_lease_at_once(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    (lease,) = leases.live_replicas(stage.redis, chat.id)
    assert (lease.replica_id, lease.state, lease.secret) == (
        replica_id,
        ReplicaState.READY,
        f"secret-{replica_id}",
    )
    assert leases.waiting_wakes(stage.redis) == {}


def test_cold_start_phases_add_up_from_wake_to_ready(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat)
    stage.tick(0.5)
    stage.loop.handle(became_ready(stage.launcher.last, stage.clock.turn(2.0)))
    assert stage.figures.cold_starts == [(("queue", 0.5), ("start", 1.25), ("map", 0.25), ("warmup", 0.5))]


def test_a_lease_is_renewed_by_each_report(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.report(replica_id, running=3, waiting=1)
    (lease,) = leases.live_replicas(stage.redis, chat.id)
    assert (lease.running, lease.waiting) == (3, 1)


def test_held_requests_scale_beyond_one(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=5)
    stage.tick()
    assert len(stage.launcher.specs) == 3


def test_the_last_replica_goes_after_the_idle_timeout(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.clock.turn(29.0)
    stage.report(replica_id, idle_s=29.0)
    stage.tick(0.0)
    assert stage.launcher.terminated == []
    stage.clock.turn(2.0)
    stage.report(replica_id, idle_s=31.0)
    stage.tick(0.0)
    assert stage.launcher.terminated == [replica_id]
    assert leases.live_replicas(stage.redis, chat.id) == ()


def test_a_replica_that_went_leaves_a_closed_and_billed_row(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.clock.turn(40.0)
    stage.report(replica_id, idle_s=40.0)
    stage.tick(0.0)
    stage.loop.handle(went(replica_id, stage.clock.turn(3.0)))
    assert stage.states() == [ReplicaState.GONE]
    with stage.database.read() as conn:
        (row,) = list_ledger(conn, stage.tenant.id)
    assert (row.event.meter, row.event.quantity) == (Meter.REPLICA_SECONDS, 43)


def test_replica_seconds_are_billed_each_minute_without_gap_or_overlap(
    stage: Stage, chat: Deployment
) -> None:
    replica_id = stage.started(chat)
    stage.tick(70.4)
    stage.report(replica_id, running=1)
    stage.tick(70.4)
    stage.loop.handle(crashed(replica_id, stage.clock.turn(1.0)))
    with stage.database.read() as conn:
        rows = list_ledger(conn, stage.tenant.id)
    assert sum(row.event.quantity for row in rows) == 141
    assert len(rows) == 3


def test_a_crashed_replica_is_replaced_at_once_and_shown(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.loop.handle(crashed(replica_id, stage.clock.turn(1.0), "ended by SIGKILL"))
    stage.wake(chat)
    stage.tick(0.0)
    assert len(stage.launcher.specs) == 2
    failure = stage.deployment(chat).failure
    assert failure is not None
    assert (failure.code, failure.message) == ("replica_failed", "a replica failed: ended by SIGKILL")


def test_failing_starts_are_slowed_down(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    for _ in range(20):
        stage.tick(0.5)
        stage.loop.handle(crashed(stage.launcher.last, stage.clock.now))
    assert len(stage.launcher.specs) == 5


def test_a_replica_that_gets_ready_clears_the_failure(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    stage.tick()
    stage.loop.handle(crashed(stage.launcher.last, stage.clock.now))
    stage.tick()
    assert stage.deployment(chat).failure is not None
    stage.loop.handle(became_ready(stage.launcher.last, stage.clock.turn(1.0)))
    stage.tick()
    assert stage.deployment(chat).failure is None


def test_a_launcher_that_refuses_leaves_no_open_row(stage: Stage, chat: Deployment) -> None:
    stage.launcher.refusal = "no more processes"
    stage.wake(chat)
    stage.tick()
    stage.tick(0.0)
    assert set(stage.states()) == {ReplicaState.GONE}
    failure = stage.deployment(chat).failure
    assert failure is not None
    assert failure.code == "launch_failed"


def test_a_build_without_serving_facts_is_shown_not_started(stage: Stage) -> None:
    broken = deployed(stage.database, stage.blobs, stage.tenant, "broken", info={"weights_bytes": 1})
    stage.wake(broken)
    stage.tick()
    failure = stage.deployment(broken).failure
    assert failure is not None
    assert failure.code == "does_not_fit"
    assert stage.launcher.specs == []


def test_one_broken_deployment_does_not_stop_the_others(stage: Stage, chat: Deployment) -> None:
    broken = deployed(stage.database, stage.blobs, stage.tenant, "aaa", info={})
    stage.wake(broken)
    stage.wake(chat)
    stage.tick()
    assert [spec.deployment_id for spec in stage.launcher.specs] == [chat.id]


def test_a_start_that_takes_too_long_is_killed_and_tried_again(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    stage.tick()
    late = stage.launcher.last
    stage.tick(101.0)
    assert stage.launcher.killed == [late]
    assert stage.launcher.last != late


def test_a_silent_replica_loses_its_lease_and_is_killed(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.loop.handle(Polled(replica_id, None, (), stage.clock.now, "timed out"))
    stage.tick(31.0)
    assert stage.launcher.killed == [replica_id]
    assert leases.live_replicas(stage.redis, chat.id) == ()


def test_a_drain_that_takes_too_long_is_ended(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.clock.turn(40.0)
    stage.report(replica_id, idle_s=40.0)
    stage.tick(0.0)
    stage.tick(51.0)
    assert stage.launcher.killed == [replica_id]


def test_deleting_a_deployment_drains_it_before_it_is_gone(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    with stage.database.write() as conn:
        deployments.delete_deployment(conn, stage.tenant.id, "chat", stage.clock.now)
    stage.tick()
    assert stage.launcher.terminated == [replica_id]
    assert stage.deployment(chat).state is DeploymentState.DELETING
    stage.loop.handle(went(replica_id, stage.clock.turn(1.0)))
    stage.tick()
    assert stage.deployment(chat).state is DeploymentState.DELETED


def test_a_wake_for_a_deleted_deployment_is_forgotten(stage: Stage, chat: Deployment) -> None:
    with stage.database.write() as conn:
        deployments.delete_deployment(conn, stage.tenant.id, "chat", stage.clock.now)
    stage.wake(chat)
    stage.tick()
    assert leases.waiting_wakes(stage.redis) == {}
    with stage.database.read() as conn, pytest.raises(DeploymentNotFound):
        deployments.get_deployment(conn, stage.tenant.id, "chat")


def test_a_wake_that_nobody_waits_for_is_forgotten(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat)
    stage.launcher.refusal = "not today"
    stage.tick()
    stage.tick(20.0)
    assert leases.waiting_wakes(stage.redis) == {}


def test_a_minimum_is_kept_without_demand(stage: Stage) -> None:
    deployed(stage.database, stage.blobs, stage.tenant, "warm", ScalingPolicy(min_replicas=2, max_replicas=2))
    stage.tick()
    assert len(stage.launcher.specs) == 2


def test_an_idle_replica_of_another_deployment_gives_way(make_stage: Callable[..., Stage]) -> None:
    tight = replace(RULES, node=replace(RULES.node, node=Node(16 * GIB, 1.0)))
    stage = make_stage(tight)
    first = deployed(stage.database, stage.blobs, stage.tenant, "first", SCALABLE)
    second = deployed(stage.database, stage.blobs, other_tenant(stage), "second", SCALABLE)
    idle = stage.started(first)
    stage.clock.turn(5.0)
    stage.report(idle, idle_s=5.0)
    stage.tick(0.0)
    stage.wake(second)
    stage.tick()
    assert (stage.launcher.terminated, len(stage.launcher.specs)) == ([idle], 1)
    stage.loop.handle(went(idle, stage.clock.turn(0.5)))
    stage.tick(0.0)
    assert stage.launcher.specs[-1].deployment_id == second.id


def test_a_busy_replica_never_gives_way(make_stage: Callable[..., Stage]) -> None:
    tight = replace(RULES, node=replace(RULES.node, node=Node(16 * GIB, 1.0)))
    stage = make_stage(tight)
    first = deployed(stage.database, stage.blobs, stage.tenant, "first", SCALABLE)
    second = deployed(stage.database, stage.blobs, other_tenant(stage), "second", SCALABLE)
    busy = stage.started(first)
    stage.report(busy, running=1)
    stage.wake(second)
    stage.tick()
    assert stage.launcher.terminated == []


def test_a_node_that_is_too_small_is_said_on_the_deployment(make_stage: Callable[..., Stage]) -> None:
    stage = make_stage(replace(RULES, node=replace(RULES.node, node=Node(GIB // 2, 8.0))))
    chat = deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)
    stage.wake(chat)
    stage.tick()
    failure = stage.deployment(chat).failure
    assert failure is not None
    assert "this node offers 512 MiB" in failure.message


def test_figures_survive_the_replica_that_counted_them(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.report(replica_id, generation_tokens=70, steps=9)
    stage.loop.handle(went(replica_id, stage.clock.turn(1.0)))
    stage.tick()
    (figures,) = stage.figures.snapshots[-1].deployments
    assert (figures.totals.generation_tokens, figures.totals.steps, figures.ready) == (70, 9, 0)


def test_rows_of_a_killed_scheduler_are_closed_at_the_next_start(stage: Stage, chat: Deployment) -> None:
    gone, alive = stage.started(chat), "rep_alive"
    with stage.database.write() as conn:
        replicas.insert_replica(conn, chat, NOW, replica_id=alive)
        replicas.set_replica_state(conn, alive, ReplicaState.READY, NOW)
    stage.actor.fleet.remove(gone)
    stage.launcher.leftovers = (alive,)
    recover(stage.actor, stage.clock.turn(100.0))
    with stage.database.read() as conn:
        states = {r.id: r.state for r in replicas.list_replicas(conn, states=tuple(ReplicaState))}
    assert states == {gone: ReplicaState.GONE, alive: ReplicaState.DRAINING}
    assert leases.live_replicas(stage.redis, None) == ()


def test_an_unseen_replica_is_not_billed_for_the_time_nobody_looked(stage: Stage, chat: Deployment) -> None:
    gone = stage.started(chat)
    stage.actor.fleet.remove(gone)
    recover(stage.actor, stage.clock.turn(5000.0))
    with stage.database.read() as conn:
        assert list_ledger(conn, stage.tenant.id) == ()


def test_a_wake_is_answered_at_once_and_stop_ends_the_loop(
    make_stage: Callable[..., Stage],
) -> None:
    stage = make_stage(replace(RULES, tick_s=3600.0))
    chat = deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)
    stage.loop.clock = wall_clock
    events = iter([Woken(chat.id, wall_clock()), StopAsked()])

    def react() -> None:
        leases.wake(stage.redis, chat.id, wall_clock())
        stage.loop.events.put(next(events))

    stage.figures.then = react
    stage.loop.run()
    assert [spec.deployment_id for spec in stage.launcher.specs] == [chat.id]


def test_polls_carry_on_for_ready_and_draining_replicas(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.tick()
    stage.tick()
    assert stage.poller.polls == [(replica_id, ())]
    stage.report(replica_id)
    stage.tick()
    assert len(stage.poller.polls) == 2
