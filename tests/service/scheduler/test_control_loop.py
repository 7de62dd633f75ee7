"""The control loop: demand, scale to zero, bills, deletion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from common.clock import wall_clock
from common.wire import ReplicaState
from scheduler.events import StopAsked, Woken
from storage import deployments, leases
from storage.errors import DeploymentNotFound
from storage.ledger import list_ledger
from storage.records import Deployment, DeploymentState, Meter, ScalingPolicy
from tests.support.fake_launcher import became_ready, crashed, went
from tests.support.serving import deployed
from tests.support.stage import RULES, SCALABLE, Stage


@pytest.mark.pitfall("Z6")
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


@pytest.mark.pitfall("Z7")
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


def test_figures_survive_the_replica_that_counted_them(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.report(replica_id, generation_tokens=70, steps=9)
    stage.loop.handle(went(replica_id, stage.clock.turn(1.0)))
    stage.tick()
    (figures,) = stage.figures.snapshots[-1].deployments
    assert (figures.totals.generation_tokens, figures.totals.steps, figures.ready) == (70, 9, 0)


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
