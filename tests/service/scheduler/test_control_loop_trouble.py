"""The control loop when starts fail, replicas crash or hang, room is short, or its predecessor was killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from common.wire import ReplicaState
from scheduler.events import Polled
from scheduler.placement import Node
from scheduler.recovery import recover
from storage import deployments, jobs, leases, models, replicas
from storage.ledger import list_ledger
from storage.records import Deployment, Revision, Tenant
from tests.support.fake_launcher import became_ready, crashed, went
from tests.support.serving import deployed, published
from tests.support.stage import GIB, RULES, SCALABLE, Stage
from tests.support.storage_rows import NOW, a_file, a_job, a_tenant


def other_tenant(stage: Stage) -> Tenant:
    with stage.database.write() as conn:
        return a_tenant(conn, "other")


def test_a_ceiling_that_the_budget_cannot_pay_is_lowered_in_the_row(
    make_stage: Callable[..., Stage],
) -> None:
    stage = make_stage(replace(RULES, node=replace(RULES.node, kv_budget_bytes=10 << 10)))
    chat = deployed(stage.database, stage.blobs, stage.tenant, "chat", SCALABLE)
    stage.wake(chat)
    stage.tick()
    assert stage.launcher.specs[0].kv_blocks == 10
    assert stage.deployment(chat).kv_ceiling_tokens == 160


def test_a_crashed_replica_is_replaced_at_once_and_shown(stage: Stage, chat: Deployment) -> None:
    replica_id = stage.started(chat)
    stage.loop.handle(crashed(replica_id, stage.clock.turn(1.0), "ended by SIGKILL"))
    stage.wake(chat)
    stage.tick(0.0)
    assert len(stage.launcher.specs) == 2
    failure = stage.deployment(chat).failure
    assert failure is not None
    assert (failure.code, failure.message) == ("replica_failed", "a replica failed: ended by SIGKILL")


def test_a_replica_that_never_got_ready_is_told_from_one_that_served(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    stage.tick()
    stage.loop.handle(crashed(stage.launcher.last, stage.clock.now, "no such file"))
    stage.tick(0.0)
    failure = stage.deployment(chat).failure
    assert failure is not None
    assert (failure.code, failure.message) == (
        "replica_start_failed",
        "a starting replica failed: no such file",
    )


def test_failing_starts_are_slowed_down(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    for _ in range(20):
        stage.tick(0.5)
        stage.loop.handle(crashed(stage.launcher.last, stage.clock.now))
    assert len(stage.launcher.specs) == 5


def moved_on(stage: Stage, chat: Deployment) -> Revision:
    """The deployment, pointed to a second revision of its model."""
    build = published(stage.blobs, stage.tenant, "key-second", {})
    with stage.database.write() as conn:
        job = a_job(conn, stage.tenant, "chat", a_file(content="other weights"))
        assert jobs.claim_job(conn, job.id, "wrk_1", NOW, 30.0) is not None
        revision = models.set_revision_ready(conn, job.revision_id, build, NOW)
        deployments.set_revision(conn, stage.tenant.id, chat.name, revision, stage.clock.now)
    return revision


def test_a_new_revision_does_not_inherit_its_predecessors_failures(stage: Stage, chat: Deployment) -> None:
    stage.wake(chat, held=1)
    for _ in range(20):
        stage.tick(0.5)
        stage.loop.handle(crashed(stage.launcher.last, stage.clock.now))
    count = len(stage.launcher.specs)
    moved_on(stage, chat)
    stage.tick(0.1)
    assert len(stage.launcher.specs) == count + 1
    assert stage.deployment(chat).failure is None


def test_a_replica_of_an_old_revision_fails_alone(stage: Stage, chat: Deployment) -> None:
    old = stage.started(chat)
    moved_on(stage, chat)
    stage.wake(chat, held=1)
    stage.tick()
    stage.loop.handle(crashed(old, stage.clock.turn(1.0), "ended by SIGKILL"))
    stage.tick(0.0)
    assert stage.deployment(chat).failure is None


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
