"""`/api/v1/deployments`: revisions made reachable, their scaling policy and their replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Query

from api import routing
from api.auth import Admin, Reader
from api.manage import show
from api.manage.schema import (
    DeploymentBody,
    DeploymentChange,
    NewDeployment,
    Page,
    PolicyChange,
    ReplicaChangeBody,
)
from api.services import Given
from storage import deployments, models, replicas
from storage.db import Connection
from storage.errors import RevisionNotReady
from storage.records import Deployment, Revision, ScalingPolicy

router = routing.router()


@router.post("/api/v1/deployments", response_model=DeploymentBody, status_code=201, tags=["deployments"])
async def create_deployment(body: NewDeployment, given: Given, who: Admin) -> DeploymentBody:
    """Serve a ready revision under a name. With `min_replicas` of 0 nothing runs until the first request."""
    ceiling = body.kv_ceiling_tokens or given.settings.kv_ceiling_tokens
    found = await given.store.write(_create, who.tenant_id, body, ceiling, given.clock())
    if found.policy.min_replicas:
        await given.leases.wake(found.id)
    return show.deployment(found, ())


@router.get("/api/v1/deployments", response_model=Page[DeploymentBody], tags=["deployments"])
async def list_deployments(given: Given, who: Reader) -> Page[DeploymentBody]:
    """By name, each with its living replicas."""
    return Page[DeploymentBody](data=await given.store.read(_all, who.tenant_id))


@router.get("/api/v1/deployments/{name}", response_model=DeploymentBody, tags=["deployments"])
async def get_deployment(name: str, given: Given, who: Reader) -> DeploymentBody:
    return await given.store.read(_one, who.tenant_id, name)


@router.patch("/api/v1/deployments/{name}", response_model=DeploymentBody, tags=["deployments"])
async def update_deployment(name: str, body: DeploymentChange, given: Given, who: Admin) -> DeploymentBody:
    """Change the policy, or move to another ready revision of the same model."""
    found = await given.store.write(_change, who.tenant_id, name, body, given.clock())
    if found.policy.min_replicas:  # a wake counts as demand: it would start a replica at zero
        await given.leases.wake(found.id)
    return await given.store.read(_one, who.tenant_id, name)


@router.delete("/api/v1/deployments/{name}", response_model=DeploymentBody, tags=["deployments"])
async def delete_deployment(name: str, given: Given, who: Admin) -> DeploymentBody:
    """Stop serving the name at once; its replicas finish what they are doing and go."""
    found = await given.store.write(deployments.delete_deployment, who.tenant_id, name, given.clock())
    await given.leases.wake(found.id)
    return show.deployment(found, ())


@router.get(
    "/api/v1/deployments/{name}/replica-history",
    response_model=Page[ReplicaChangeBody],
    tags=["deployments"],
)
async def replica_history(
    name: str,
    given: Given,
    who: Reader,
    window_s: Annotated[float, Query(gt=0, le=31 * 86_400)] = 86_400.0,
) -> Page[ReplicaChangeBody]:
    """State changes of its replicas, oldest first."""
    now = given.clock()
    found = await given.store.read(_history, who.tenant_id, name, now - window_s, now)
    return Page[ReplicaChangeBody](data=found)


def _create(
    conn: Connection, tenant_id: str, body: NewDeployment, kv_ceiling_tokens: int, now: float
) -> Deployment:
    policy = ScalingPolicy(
        body.policy.min_replicas,
        body.policy.max_replicas,
        body.policy.idle_timeout_s,
        body.policy.target_in_flight,
    )
    revision = _wanted(conn, tenant_id, body.model, body.revision_id)
    return deployments.create_deployment(conn, tenant_id, body.name, revision, policy, kv_ceiling_tokens, now)


def _wanted(conn: Connection, tenant_id: str, model_name: str, revision_id: str | None) -> Revision:
    model = models.get_model(conn, tenant_id, model_name)
    if revision_id is not None:
        return models.get_revision(conn, tenant_id, revision_id)
    latest = models.latest_ready_revision(conn, tenant_id, model.id)
    if latest is None:
        newest = models.list_revisions(conn, tenant_id, model.id)
        raise RevisionNotReady(
            newest[0].id if newest else model_name, newest[0].state if newest else "missing"
        )
    return latest


def _change(conn: Connection, tenant_id: str, name: str, body: DeploymentChange, now: float) -> Deployment:
    found = deployments.get_deployment(conn, tenant_id, name)
    if body.revision_id is not None:
        revision = models.get_revision(conn, tenant_id, body.revision_id)
        found = deployments.set_revision(conn, tenant_id, name, revision, now)
    if body.policy is not None:
        policy = _merged(found.policy, body.policy)
        found = deployments.update_policy(conn, tenant_id, name, policy, now)
    return found


def _merged(policy: ScalingPolicy, change: PolicyChange) -> ScalingPolicy:
    return replace(policy, **change.model_dump(exclude_none=True))


def _all(conn: Connection, tenant_id: str) -> list[DeploymentBody]:
    found = deployments.list_deployments(conn, tenant_id, include_deleting=True)
    return [show.deployment(d, replicas.list_replicas(conn, d.id)) for d in found]


def _one(conn: Connection, tenant_id: str, name: str) -> DeploymentBody:
    found = deployments.get_deployment(conn, tenant_id, name)
    return show.deployment(found, replicas.list_replicas(conn, found.id))


def _history(
    conn: Connection, tenant_id: str, name: str, since: float, until: float
) -> list[ReplicaChangeBody]:
    found = deployments.get_deployment(conn, tenant_id, name)
    changes = replicas.replica_history(conn, tenant_id, since, until, found.id)
    return [ReplicaChangeBody.model_validate(change) for change in changes]
