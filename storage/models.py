"""Models: names a tenant owns. Their revisions are in `storage.revisions`, re-exported here."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.ids import Kind, new_id
from storage.blobs.names import build_prefix
from storage.errors import ModelInUse, ModelNotFound
from storage.jobs import cancel_job
from storage.records import DeploymentState, JobState, Model, UploadState
from storage.revisions import (
    get_revision,
    latest_ready_revision,
    list_revisions,
    load_revision,
    set_revision_failed,
    set_revision_ready,
)
from storage.tables import blobs, deployments, jobs, models, revision_files, revisions, upload_files, uploads
from storage.write import insert_if_absent

__all__ = [
    "delete_model",
    "ensure_model",
    "get_model",
    "get_revision",
    "latest_ready_revision",
    "list_models",
    "list_revisions",
    "load_revision",
    "set_revision_failed",
    "set_revision_ready",
]

_TRIES = 3


def list_models(conn: Connection, tenant_id: str) -> tuple[Model, ...]:
    """By name."""
    rows = conn.execute(
        sa.select(models)
        .where(models.c.tenant_id == tenant_id, models.c.deleted_at.is_(None))
        .order_by(models.c.name)
    ).mappings()
    return tuple(_model(row) for row in rows)


def get_model(conn: Connection, tenant_id: str, name: str) -> Model:
    """Raises: ModelNotFound."""
    row = (
        conn.execute(
            sa.select(models).where(
                models.c.tenant_id == tenant_id, models.c.name == name, models.c.deleted_at.is_(None)
            )
        )
        .mappings()
        .first()
    )
    if row is None:
        raise ModelNotFound(name)
    return _model(row)


def ensure_model(conn: Connection, tenant_id: str, name: str, now: float) -> Model:
    """The tenant's model of that name, made when it does not exist, and locked until the transaction ends."""
    row = {
        "id": new_id(Kind.MODEL),
        "tenant_id": tenant_id,
        "name": name,
        "created_at": now,
        "deleted_at": None,
    }
    is_live = sa.and_(models.c.tenant_id == tenant_id, models.c.name == name, models.c.deleted_at.is_(None))
    for _ in range(_TRIES):
        insert_if_absent(
            conn, models, row, [models.c.tenant_id, models.c.name], models.c.deleted_at.is_(None)
        )
        # Locked, so that it can't be deleted before the caller has put a revision under it.
        found = conn.execute(sa.select(models).where(is_live).with_for_update()).mappings().first()
        if found is not None:
            return _model(found)
    raise ModelNotFound(name)


def delete_model(conn: Connection, tenant_id: str, name: str, now: float) -> tuple[str, ...]:
    """Delete a model and its revisions, and cancel its open jobs; the name is free at once.

    Returns the blob keys and artifact prefixes (these end in "/") that nothing refers to any more: delete
    them after the transaction has committed.
    Raises: ModelNotFound, ModelInUse: a deployment serves it.
    """
    model = get_model(conn, tenant_id, name)
    conn.execute(sa.select(models.c.id).where(models.c.id == model.id).with_for_update())
    serving = conn.execute(
        sa.select(deployments.c.name)
        .where(deployments.c.model_id == model.id, deployments.c.state != DeploymentState.DELETED)
        .order_by(deployments.c.name)
    ).scalars()
    if names := tuple(serving):
        raise ModelInUse(name, names)
    open_jobs = sa.select(jobs.c.id).where(
        jobs.c.model_id == model.id, jobs.c.state.in_((JobState.QUEUED, JobState.RUNNING))
    )
    for job_id in conn.execute(open_jobs).scalars().all():
        cancel_job(conn, tenant_id, job_id, now)
    conn.execute(sa.update(models).where(models.c.id == model.id).values(deleted_at=now))
    return _drop_blobs(conn, tenant_id, model.id) + _orphan_prefixes(conn, tenant_id, model.id)


def _drop_blobs(conn: Connection, tenant_id: str, model_id: str) -> tuple[str, ...]:
    """Forget the stored blobs that only this (deleted) model's revisions used; their keys."""
    live = (
        sa.select(revision_files.c.sha256)
        .join(revisions, revisions.c.id == revision_files.c.revision_id)
        .join(models, models.c.id == revisions.c.model_id)
        .where(revision_files.c.tenant_id == tenant_id, models.c.deleted_at.is_(None))
    )
    unfinished = (UploadState.CREATED, UploadState.UPLOADING)
    counted_on = (
        sa.select(upload_files.c.sha256)
        .join(uploads, uploads.c.id == upload_files.c.upload_id)
        .where(uploads.c.tenant_id == tenant_id, uploads.c.state.in_(unfinished))
        .where(upload_files.c.reused_key.is_not(None))
    )
    mine = (
        sa.select(revision_files.c.sha256)
        .join(revisions, revisions.c.id == revision_files.c.revision_id)
        .where(revisions.c.model_id == model_id)
    )
    dropped = conn.execute(
        sa.delete(blobs)
        .where(blobs.c.tenant_id == tenant_id, blobs.c.sha256.in_(mine))
        .where(blobs.c.sha256.not_in(live), blobs.c.sha256.not_in(counted_on))
        .returning(blobs.c.blob_key)
    ).scalars()
    return tuple(sorted(dropped))


def _orphan_prefixes(conn: Connection, tenant_id: str, model_id: str) -> tuple[str, ...]:
    """Directories of this model's builds that no living model shares; the pointer to each is inside."""
    mine = sa.and_(revisions.c.tenant_id == tenant_id, revisions.c.build_key.is_not(None))
    living = (
        sa.select(revisions.c.build_key)
        .join(models, models.c.id == revisions.c.model_id)
        .where(mine, models.c.deleted_at.is_(None))
    )
    dead = sa.select(revisions.c.build_key).where(mine, revisions.c.model_id == model_id)
    build_keys = conn.execute(dead.where(revisions.c.build_key.not_in(living)).distinct()).scalars()
    return tuple(sorted(build_prefix(tenant_id, key) + "/" for key in build_keys))


def _model(row: Any) -> Model:
    return Model(id=row["id"], tenant_id=row["tenant_id"], name=row["name"], created_at=row["created_at"])
