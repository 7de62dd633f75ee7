"""Replica rows, their history, their bill."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.wire import ReplicaState
from storage import ledger, replicas
from storage.errors import IllegalTransition, ReplicaNotFound
from storage.records import Meter, ReplicaChange
from storage.replica_chart import ReplicaCounts, ready_seconds, replica_counts
from tests.support.storage_rows import NOW, a_deployment, a_ready_replica, a_tenant

P = ReplicaState


@pytest.fixture
def deployment(conn, tenant):
    return a_deployment(conn, tenant)


def billed(conn, tenant):
    return sum(r.event.quantity for r in ledger.list_ledger(conn, tenant.id))


def test_a_new_replica_is_starting(conn, deployment):
    replica = replicas.insert_replica(conn, deployment, NOW, replica_id="rep_1", socket_path="/run/1")
    assert (replica.id, replica.state, replica.socket_path) == ("rep_1", P.STARTING, "/run/1")
    assert replica.revision_id == deployment.revision_id


def test_a_replicas_life_is_its_history(conn, tenant, deployment):
    replica = a_ready_replica(conn, deployment, NOW + 2)
    replicas.set_replica_state(conn, replica.id, P.DRAINING, NOW + 8, "idle")
    gone = replicas.set_replica_state(conn, replica.id, P.GONE, NOW + 9)
    history = replicas.replica_history(conn, tenant.id, NOW, NOW + 60)
    assert [(c.state, c.at - NOW, c.reason) for c in history] == [
        (P.STARTING, 0, None),
        (P.READY, 2, None),
        (P.DRAINING, 8, "idle"),
        (P.GONE, 9, None),
    ]
    assert (gone.ready_at, gone.gone_at) == (NOW + 2, NOW + 9)


def test_the_same_state_again_is_a_no_op(conn, tenant, deployment):
    replica = a_ready_replica(conn, deployment, NOW + 2)
    assert replicas.set_replica_state(conn, replica.id, P.READY, NOW + 3) == replica
    assert len(replicas.replica_history(conn, tenant.id, NOW, NOW + 60)) == 2


def test_a_replica_does_not_come_back(conn, deployment):
    replica = a_ready_replica(conn, deployment)
    replicas.set_replica_state(conn, replica.id, P.GONE, NOW)
    with pytest.raises(IllegalTransition):
        replicas.set_replica_state(conn, replica.id, P.READY, NOW)


def test_an_unknown_replica_is_an_error(conn):
    with pytest.raises(ReplicaNotFound):
        replicas.set_replica_state(conn, "rep_none", P.GONE, NOW)


def test_replicas_are_listed_by_deployment_and_state(conn, tenant, deployment):
    other = a_deployment(conn, tenant, "other", "model-2")
    starting = replicas.insert_replica(conn, deployment, NOW, replica_id="rep_0")
    ready = a_ready_replica(conn, deployment)
    gone = replicas.set_replica_state(conn, a_ready_replica(conn, other).id, P.GONE, NOW)
    assert replicas.list_replicas(conn) == (starting, ready)
    assert replicas.list_replicas(conn, deployment.id, [P.READY]) == (ready,)
    assert replicas.list_replicas(conn, other.id, list(P)) == (gone,)


def test_a_process_can_be_noted(conn, deployment):
    replica = replicas.insert_replica(conn, deployment, NOW)
    replicas.set_replica_pid(conn, replica.id, 4711, "/run/x")
    assert (
        replicas.load_replica(conn, replica.id).pid,
        replicas.load_replica(conn, replica.id).socket_path,
    ) == (
        4711,
        "/run/x",
    )


def test_history_holds_the_changes_before_a_window_of_replicas_that_live_in_it(conn, tenant, deployment):
    early = a_ready_replica(conn, deployment)
    replicas.set_replica_state(conn, early.id, P.GONE, NOW + 1)
    lasting = a_ready_replica(conn, deployment, NOW + 1)
    history = replicas.replica_history(conn, tenant.id, NOW + 10, NOW + 20, deployment.id)
    assert {c.replica_id for c in history} == {lasting.id}
    assert replica_counts(history, NOW + 10, NOW + 20) == (ReplicaCounts(NOW + 10, 0, 1, 0),)


def test_history_is_the_tenants_own(conn, tenant, deployment):
    a_ready_replica(conn, deployment)
    assert replicas.replica_history(conn, a_tenant(conn, "other").id, NOW, NOW + 60) == ()


def test_whole_seconds_are_billed_and_the_rest_is_carried(conn, tenant, deployment):
    replica = a_ready_replica(conn, deployment)
    bills = [replicas.meter_replica(conn, replica.id, NOW + at, "list-1") for at in (0.9, 1.8, 2.7, 3.6, 3.7)]
    assert bills == [0, 1, 1, 1, 0]
    assert billed(conn, tenant) == 3


def test_a_replicas_bill_ends_when_it_is_gone(conn, tenant, deployment):
    replica = a_ready_replica(conn, deployment)
    replicas.set_replica_state(conn, replica.id, P.GONE, NOW + 90.5)
    assert [r.id for r in replicas.unmetered_replicas(conn)] == [replica.id]
    assert replicas.meter_replica(conn, replica.id, NOW + 1000, "list-1") == 90
    assert replicas.meter_replica(conn, replica.id, NOW + 2000, "list-1") == 0
    assert replicas.unmetered_replicas(conn) == ()
    assert billed(conn, tenant) == 90


@pytest.mark.pitfall("B26")
def test_a_replica_that_never_got_ready_costs_nothing(conn, tenant, deployment):
    replica = replicas.insert_replica(conn, deployment, NOW)
    replicas.set_replica_state(conn, replica.id, P.GONE, NOW + 30)
    assert replicas.meter_replica(conn, replica.id, NOW + 30, "list-1") == 0
    assert replicas.unmetered_replicas(conn) == ()
    assert billed(conn, tenant) == 0


def test_replica_seconds_stand_under_the_deployments_name(conn, tenant, deployment):
    replica = a_ready_replica(conn, deployment)
    replicas.meter_replica(conn, replica.id, NOW + 5, "list-1")
    (row,) = ledger.list_ledger(conn, tenant.id)
    assert (row.event.meter, row.event.model) == (Meter.REPLICA_SECONDS, "chat")
    assert (row.event.deployment_id, row.amount_nano_usd) == (deployment.id, 50_000)


def change(replica, state, at):
    return ReplicaChange(replica, "dep", state, None, at)


def test_the_chart_is_a_step_line():
    changes = [
        change("a", P.STARTING, 0),
        change("a", P.READY, 10),
        change("b", P.STARTING, 15),
        change("b", P.READY, 20),
        change("a", P.DRAINING, 30),
        change("a", P.GONE, 40),
    ]
    assert replica_counts(changes, 5, 35) == (
        ReplicaCounts(5, 1, 0, 0),
        ReplicaCounts(10, 0, 1, 0),
        ReplicaCounts(15, 1, 1, 0),
        ReplicaCounts(20, 0, 2, 0),
        ReplicaCounts(30, 0, 1, 1),
    )


def test_no_change_is_a_flat_line_at_zero():
    assert replica_counts([], 0, 10) == (ReplicaCounts(0, 0, 0, 0),)


def test_ready_and_draining_seconds_count():
    changes = [
        change("a", P.STARTING, 0),
        change("a", P.READY, 10),
        change("a", P.DRAINING, 30),
        change("a", P.GONE, 40),
    ]
    assert ready_seconds(changes, 0, 100) == 30


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=20), st.integers(1, 99))
def test_replica_seconds_add_up_over_a_split_window(lives, middle):
    changes = [
        change(f"r{i}", state, at)
        for i, (start, length) in enumerate(lives)
        for state, at in ((P.READY, start), (P.GONE, start + length))
    ]
    total = ready_seconds(changes, 0, 100)
    assert total == sum(length for _, length in lives)
    assert ready_seconds(changes, 0, middle) + ready_seconds(changes, middle, 100) == total
