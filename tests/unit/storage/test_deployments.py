"""Deployments: made from ready revisions, changed, deleted softly."""

from __future__ import annotations

import pytest

from common.errors import InvalidInput
from common.wire import ReplicaState
from storage import deployments, models, replicas
from storage.errors import DeploymentNotFound, NameTaken, RevisionNotReady
from storage.records import DeploymentState, Failure, ScalingPolicy
from tests.support.storage_rows import (
    NOW,
    a_deployment,
    a_file,
    a_job,
    a_ready_replica,
    a_ready_revision,
    a_tenant,
)

POLICY = ScalingPolicy(min_replicas=1, max_replicas=3, idle_timeout_s=30.0, target_in_flight=8)


def test_a_deployment_is_found_by_name(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    made = deployments.create_deployment(conn, tenant.id, "chat", revision, POLICY, 4096, NOW)
    assert deployments.get_deployment(conn, tenant.id, "chat") == made
    assert deployments.load_deployment(conn, made.id) == made
    assert (made.policy, made.kv_ceiling_tokens, made.model_name) == (POLICY, 4096, "tiny")


def test_a_revision_that_is_not_ready_can_not_be_deployed(conn, tenant):
    revision = models.load_revision(conn, a_job(conn, tenant).revision_id)
    with pytest.raises(RevisionNotReady):
        deployments.create_deployment(conn, tenant.id, "chat", revision, POLICY, 4096, NOW)


def test_a_revision_of_a_deleted_model_can_not_be_deployed(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    models.delete_model(conn, tenant.id, "tiny", NOW)
    with pytest.raises(RevisionNotReady):
        deployments.create_deployment(conn, tenant.id, "chat", revision, POLICY, 4096, NOW)


def test_a_name_is_taken_once_within_a_tenant(conn, tenant):
    a_deployment(conn, tenant)
    with pytest.raises(NameTaken):
        a_deployment(conn, tenant)
    assert a_deployment(conn, a_tenant(conn, "other")).name == "chat"


@pytest.mark.parametrize(
    "policy",
    [
        ScalingPolicy(min_replicas=-1),
        ScalingPolicy(min_replicas=2, max_replicas=1),
        ScalingPolicy(min_replicas=0, max_replicas=0),
        ScalingPolicy(max_replicas=1001),
        ScalingPolicy(idle_timeout_s=0.5),
        ScalingPolicy(idle_timeout_s=float("nan")),
        ScalingPolicy(idle_timeout_s=1e9),
        ScalingPolicy(target_in_flight=0),
    ],
)
def test_an_impossible_policy_is_refused(policy):
    with pytest.raises(InvalidInput):
        deployments.check_policy(policy)


def test_a_deployment_needs_room_for_a_token(conn, tenant):
    revision = a_ready_revision(conn, tenant)
    with pytest.raises(InvalidInput):
        deployments.create_deployment(conn, tenant.id, "chat", revision, POLICY, 0, NOW)


def test_a_policy_can_be_changed(conn, tenant):
    a_deployment(conn, tenant)
    changed = deployments.update_policy(conn, tenant.id, "chat", POLICY, NOW + 1)
    assert (changed.policy, changed.updated_at) == (POLICY, NOW + 1)
    assert deployments.get_deployment(conn, tenant.id, "chat") == changed


def test_a_refused_policy_changes_nothing(conn, tenant):
    before = a_deployment(conn, tenant)
    with pytest.raises(InvalidInput):
        deployments.update_policy(conn, tenant.id, "chat", ScalingPolicy(max_replicas=0), NOW)
    assert deployments.get_deployment(conn, tenant.id, "chat") == before


def test_the_revision_can_be_rolled_over(conn, tenant):
    a_deployment(conn, tenant)
    newer = a_ready_revision(conn, tenant, "tiny", a_file("a", "newer"), build_key="b2")
    assert deployments.set_revision(conn, tenant.id, "chat", newer, NOW).revision_id == newer.id


def test_a_deployment_does_not_change_its_model(conn, tenant):
    a_deployment(conn, tenant)
    foreign = a_ready_revision(conn, tenant, "another", a_file("a", "x"), build_key="b2")
    with pytest.raises(InvalidInput):
        deployments.set_revision(conn, tenant.id, "chat", foreign, NOW)


def test_a_failure_to_start_can_be_noted_and_cleared(conn, tenant):
    deployment = a_deployment(conn, tenant)
    reason = Failure("replica_start_failed", "exit code 1")
    deployments.set_deployment_failure(conn, deployment.id, reason, NOW)
    assert deployments.load_deployment(conn, deployment.id).failure == reason
    deployments.set_deployment_failure(conn, deployment.id, None, NOW)
    assert deployments.load_deployment(conn, deployment.id).failure is None


def test_a_deleted_name_answers_no_more_and_is_free(conn, tenant):
    first = a_deployment(conn, tenant)
    deployments.delete_deployment(conn, tenant.id, "chat", NOW)
    with pytest.raises(DeploymentNotFound):
        deployments.get_deployment(conn, tenant.id, "chat")
    assert a_deployment(conn, tenant).id != first.id


def test_deleting_twice_is_an_error(conn, tenant):
    a_deployment(conn, tenant)
    deployments.delete_deployment(conn, tenant.id, "chat", NOW)
    with pytest.raises(DeploymentNotFound):
        deployments.delete_deployment(conn, tenant.id, "chat", NOW)


def test_a_deletion_ends_when_the_last_replica_is_gone(conn, tenant):
    deployment = a_deployment(conn, tenant)
    replica = a_ready_replica(conn, deployment)
    deployments.delete_deployment(conn, tenant.id, "chat", NOW)
    assert not deployments.finish_deletion(conn, deployment.id, NOW)
    replicas.set_replica_state(conn, replica.id, ReplicaState.GONE, NOW)
    assert deployments.finish_deletion(conn, deployment.id, NOW)
    assert deployments.finish_deletion(conn, deployment.id, NOW)
    assert deployments.load_deployment(conn, deployment.id).state is DeploymentState.DELETED


def test_an_active_deployment_does_not_end_by_itself(conn, tenant):
    deployment = a_deployment(conn, tenant)
    assert not deployments.finish_deletion(conn, deployment.id, NOW)


def test_the_scheduler_sees_all_tenants_and_those_being_deleted(conn, tenant):
    other = a_tenant(conn, "other")
    for owner, name in ((tenant, "a"), (other, "b"), (tenant, "c")):
        a_deployment(conn, owner, name)
    deployments.delete_deployment(conn, tenant.id, "c", NOW)
    names = [d.name for d in deployments.list_deployments(conn, None, include_deleting=True)]
    assert names == ["a", "b", "c"]
    assert [d.name for d in deployments.list_deployments(conn, tenant.id)] == ["a"]
