"""Deployments: a model's revision made reachable under a name, with a ScalingPolicy."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.errors import InvalidInput
from common.ids import Kind, new_id
from common.wire import ReplicaState
from storage.errors import DeploymentNotFound, NameTaken, RevisionNotReady
from storage.records import Deployment, DeploymentState, Failure, Revision, RevisionState, ScalingPolicy
from storage.states import deployments_before
from storage.tables import deployments, models, replicas
from storage.write import insert_if_absent

MAX_REPLICAS = 1_000
MIN_IDLE_TIMEOUT_S = 1.0
MAX_IDLE_TIMEOUT_S = 86_400.0


def check_policy(policy: ScalingPolicy) -> None:
    """Raises: InvalidInput: bounds that contradict each other or leave the allowed range. Pure."""
    if not 0 <= policy.min_replicas <= policy.max_replicas:
        raise InvalidInput("min_replicas must be 0 to max_replicas", param="min_replicas")
    if not 1 <= policy.max_replicas <= MAX_REPLICAS:
        raise InvalidInput(f"max_replicas must be 1 to {MAX_REPLICAS}", param="max_replicas")
    if not MIN_IDLE_TIMEOUT_S <= policy.idle_timeout_s <= MAX_IDLE_TIMEOUT_S:
        text = f"idle_timeout_s must be {MIN_IDLE_TIMEOUT_S:g} to {MAX_IDLE_TIMEOUT_S:g} seconds"
        raise InvalidInput(text, param="idle_timeout_s")
    if not 1 <= policy.target_in_flight <= 10_000:
        raise InvalidInput("target_in_flight must be 1 to 10000", param="target_in_flight")


def create_deployment(
    conn: Connection,
    tenant_id: str,
    name: str,
    revision: Revision,
    policy: ScalingPolicy,
    kv_ceiling_tokens: int,
    now: float,
) -> Deployment:
    """Make a ready revision reachable as `name`.

    Raises: InvalidInput, RevisionNotReady, NameTaken.
    """
    assert revision.tenant_id == tenant_id, "a tenant deploys its own revisions"
    check_policy(policy)
    if kv_ceiling_tokens < 1:
        raise InvalidInput("kv_ceiling_tokens must be at least 1", param="kv_ceiling_tokens")
    if revision.state is not RevisionState.READY:
        raise RevisionNotReady(revision.id, revision.state)
    # The lock orders this against delete_model, which then sees the deployment or has deleted the name.
    model_name = conn.execute(
        sa.select(models.c.name)
        .where(models.c.id == revision.model_id, models.c.deleted_at.is_(None))
        .with_for_update()
    ).scalar_one_or_none()
    if model_name is None:
        raise RevisionNotReady(revision.id, "deleted")
    row = {
        "id": new_id(Kind.DEPLOYMENT),
        "tenant_id": tenant_id,
        "name": name,
        "model_id": revision.model_id,
        "model_name": model_name,
        "revision_id": revision.id,
        "state": DeploymentState.ACTIVE,
        **_policy_columns(policy),
        "kv_ceiling_tokens": kv_ceiling_tokens,
        "created_at": now,
        "updated_at": now,
    }
    is_active = sa.text("state = 'active'")
    if not insert_if_absent(conn, deployments, row, [deployments.c.tenant_id, deployments.c.name], is_active):
        raise NameTaken("deployment", name)
    return get_deployment(conn, tenant_id, name)


def get_deployment(conn: Connection, tenant_id: str, name: str) -> Deployment:
    """The tenant's active deployment of that name.

    Raises: DeploymentNotFound.
    """
    row = conn.execute(sa.select(deployments).where(_named(tenant_id, name))).mappings().first()
    if row is None:
        raise DeploymentNotFound(name)
    return _deployment(row)


def load_deployment(conn: Connection, deployment_id: str) -> Deployment:
    """For the control plane: by id, in any state.

    Raises: DeploymentNotFound.
    """
    row = conn.execute(sa.select(deployments).where(deployments.c.id == deployment_id)).mappings().first()
    if row is None:
        raise DeploymentNotFound(deployment_id)
    return _deployment(row)


def list_deployments(
    conn: Connection, tenant_id: str | None, *, include_deleting: bool = False
) -> tuple[Deployment, ...]:
    """By name.

    `tenant_id=None` lists every tenant's, for the scheduler, which also drains the deleting ones.
    """
    states = [DeploymentState.ACTIVE]
    if include_deleting:
        states.append(DeploymentState.DELETING)
    query = sa.select(deployments).where(deployments.c.state.in_(states))
    if tenant_id is not None:
        query = query.where(deployments.c.tenant_id == tenant_id)
    rows = conn.execute(query.order_by(deployments.c.name, deployments.c.id)).mappings()
    return tuple(_deployment(row) for row in rows)


def update_policy(
    conn: Connection, tenant_id: str, name: str, policy: ScalingPolicy, now: float
) -> Deployment:
    """Raises: InvalidInput, DeploymentNotFound."""
    check_policy(policy)
    return _update(conn, tenant_id, name, {**_policy_columns(policy), "updated_at": now})


def set_revision(conn: Connection, tenant_id: str, name: str, revision: Revision, now: float) -> Deployment:
    """Point the deployment to another ready revision; the scheduler rolls its replicas over.

    Raises: RevisionNotReady, DeploymentNotFound, InvalidInput: the revision is of another model.
    """
    if revision.state is not RevisionState.READY:
        raise RevisionNotReady(revision.id, revision.state)
    if get_deployment(conn, tenant_id, name).model_id != revision.model_id:
        raise InvalidInput(f"revision {revision.id} is not one of this deployment's model", param="revision")
    values = {"revision_id": revision.id, "failure_code": None, "failure_message": None, "updated_at": now}
    return _update(conn, tenant_id, name, values)


def set_kv_ceiling(conn: Connection, deployment_id: str, kv_ceiling_tokens: int, now: float) -> None:
    """Note what its replicas really allocate: placement found less room than the deployment asked for."""
    conn.execute(
        sa.update(deployments)
        .where(deployments.c.id == deployment_id)
        .values(kv_ceiling_tokens=kv_ceiling_tokens, updated_at=now)
    )


def set_deployment_failure(
    conn: Connection,
    deployment_id: str,
    failure: Failure | None,
    now: float,
    *,
    revision_id: str | None = None,
) -> None:
    """Note why its replicas don't start; None clears it. The dashboard and held requests show it.

    With `revision_id` nothing is noted once the deployment serves another: a failure is its revision's.
    """
    mine = deployments.c.id == deployment_id
    if revision_id is not None:
        mine = sa.and_(mine, deployments.c.revision_id == revision_id)
    conn.execute(
        sa.update(deployments)
        .where(mine)
        .values(
            failure_code=None if failure is None else failure.code,
            failure_message=None if failure is None else failure.message,
            updated_at=now,
        )
    )


def delete_deployment(conn: Connection, tenant_id: str, name: str, now: float) -> Deployment:
    """Stop serving the name at once; the scheduler drains the replicas, then calls `finish_deletion`.

    Raises: DeploymentNotFound.
    """
    return _update(conn, tenant_id, name, {"state": DeploymentState.DELETING, "updated_at": now})


def finish_deletion(conn: Connection, deployment_id: str, now: float) -> bool:
    """Mark a deleting deployment deleted once none of its replicas is left; whether it is."""
    alive = sa.select(replicas.c.id).where(
        replicas.c.deployment_id == deployment_id, replicas.c.state != ReplicaState.GONE
    )
    before = deployments_before(DeploymentState.DELETED)
    done = conn.execute(
        sa.update(deployments)
        .where(deployments.c.id == deployment_id, deployments.c.state.in_(before), ~sa.exists(alive))
        .values(state=DeploymentState.DELETED, deleted_at=now, updated_at=now)
    )
    return done.rowcount == 1 or load_deployment(conn, deployment_id).state is DeploymentState.DELETED


def _named(tenant_id: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        deployments.c.tenant_id == tenant_id,
        deployments.c.name == name,
        deployments.c.state == DeploymentState.ACTIVE,
    )


def _update(conn: Connection, tenant_id: str, name: str, values: dict[str, Any]) -> Deployment:
    row = (
        conn.execute(
            sa.update(deployments).where(_named(tenant_id, name)).values(**values).returning(deployments)
        )
        .mappings()
        .first()
    )
    if row is None:
        raise DeploymentNotFound(name)
    return _deployment(row)


def _policy_columns(policy: ScalingPolicy) -> dict[str, Any]:
    return {
        "min_replicas": policy.min_replicas,
        "max_replicas": policy.max_replicas,
        "idle_timeout_s": policy.idle_timeout_s,
        "target_in_flight": policy.target_in_flight,
    }


def _deployment(row: Any) -> Deployment:
    failure = None
    if row["failure_code"] is not None:
        failure = Failure(row["failure_code"], row["failure_message"])
    return Deployment(
        id=row["id"],
        tenant_id=row["tenant_id"],
        name=row["name"],
        model_id=row["model_id"],
        model_name=row["model_name"],
        revision_id=row["revision_id"],
        state=DeploymentState(row["state"]),
        policy=ScalingPolicy(
            row["min_replicas"], row["max_replicas"], row["idle_timeout_s"], row["target_in_flight"]
        ),
        kv_ceiling_tokens=row["kv_ceiling_tokens"],
        failure=failure,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
