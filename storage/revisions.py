"""Revisions: immutable checkpoints under a model, and their way from uploaded to ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.ids import Kind, new_id
from storage.errors import IllegalTransition, RevisionNotFound
from storage.records import Build, Failure, Revision, RevisionFile, RevisionState, UploadState
from storage.states import revisions_before, uploads_before
from storage.tables import jobs, models, revision_files, revisions, uploads


def create_revision(
    conn: Connection,
    tenant_id: str,
    model_id: str,
    files: Sequence[RevisionFile],
    options: Mapping[str, Any],
    now: float,
) -> Revision:
    """Add the model's next revision, in state `uploaded`."""
    conn.execute(sa.select(models.c.id).where(models.c.id == model_id).with_for_update()).scalar_one()
    last = conn.execute(
        sa.select(sa.func.max(revisions.c.number)).where(revisions.c.model_id == model_id)
    ).scalar_one()
    revision_id = new_id(Kind.REVISION)
    conn.execute(
        sa.insert(revisions).values(
            id=revision_id,
            tenant_id=tenant_id,
            model_id=model_id,
            number=(last or 0) + 1,
            state=RevisionState.UPLOADED,
            options=dict(options),
            info={},
            created_at=now,
        )
    )
    rows = [
        {
            "tenant_id": tenant_id,
            "revision_id": revision_id,
            "position": position,
            "name": file.name,
            "size_bytes": file.size_bytes,
            "sha256": file.sha256,
            "blob_key": file.blob_key,
        }
        for position, file in enumerate(files)
    ]
    if rows:
        conn.execute(sa.insert(revision_files), rows)
    return load_revision(conn, revision_id)


def get_revision(conn: Connection, tenant_id: str, revision_id: str) -> Revision:
    """Raises: RevisionNotFound: also for another tenant's."""
    revision = load_revision(conn, revision_id)
    if revision.tenant_id != tenant_id:
        raise RevisionNotFound(revision_id)
    return revision


def load_revision(conn: Connection, revision_id: str) -> Revision:
    """For the control plane: any tenant's revision.

    Raises: RevisionNotFound.
    """
    found = _select(conn, revisions.c.id == revision_id)
    if not found:
        raise RevisionNotFound(revision_id)
    return found[0]


def list_revisions(conn: Connection, tenant_id: str, model_id: str) -> tuple[Revision, ...]:
    """Newest first."""
    return _select(conn, sa.and_(revisions.c.tenant_id == tenant_id, revisions.c.model_id == model_id))


def latest_ready_revision(conn: Connection, tenant_id: str, model_id: str) -> Revision | None:
    """The highest-numbered ready revision; its `build` is set."""
    mine = sa.and_(revisions.c.tenant_id == tenant_id, revisions.c.model_id == model_id)
    found = _select(conn, sa.and_(mine, revisions.c.state == RevisionState.READY), limit=1)
    return found[0] if found else None


def set_revision_compiling(conn: Connection, revision_id: str) -> None:
    """Mark it compiling; a no-op when it is (a second attempt) or when it ended."""
    conn.execute(
        sa.update(revisions)
        .where(
            revisions.c.id == revision_id, revisions.c.state.in_(revisions_before(RevisionState.COMPILING))
        )
        .values(state=RevisionState.COMPILING)
    )


def set_revision_ready(conn: Connection, revision_id: str, build: Build, now: float) -> Revision:
    """Publish the build. Its upload becomes ready too. A repeat with the same `build_key` is a no-op.

    Call it in the same transaction as `jobs.succeed`, whose fencing token then guards both.
    Raises: RevisionNotFound, IllegalTransition: it failed, or is ready with another build.
    """
    _lock_jobs(conn, revision_id)
    done = conn.execute(
        sa.update(revisions)
        .where(revisions.c.id == revision_id, revisions.c.state.in_(revisions_before(RevisionState.READY)))
        .values(
            state=RevisionState.READY,
            build_key=build.build_key,
            artifact_prefix=build.artifact_prefix,
            tokenizer_prefix=build.tokenizer_prefix,
            info=dict(build.info),
            ready_at=now,
        )
    )
    revision = load_revision(conn, revision_id)
    is_repeat = revision.build is not None and revision.build.build_key == build.build_key
    if done.rowcount == 0 and not is_repeat:
        raise IllegalTransition("revision", revision_id, revision.state, RevisionState.READY)
    conn.execute(
        sa.update(uploads)
        .where(uploads.c.revision_id == revision_id, uploads.c.state.in_(uploads_before(UploadState.READY)))
        .values(state=UploadState.READY, updated_at=now)
    )
    return revision


def move_builds(conn: Connection, tenant_id: str, build: Build) -> int:
    """Point the tenant's ready revisions of the same build key to `build`; how many were elsewhere.

    What they had was found damaged, or the compile would have reused it: this is what heals them.
    """
    mine = sa.and_(revisions.c.tenant_id == tenant_id, revisions.c.state == RevisionState.READY)
    stale = sa.and_(
        revisions.c.build_key == build.build_key, revisions.c.artifact_prefix != build.artifact_prefix
    )
    return conn.execute(
        sa.update(revisions)
        .where(mine, stale)
        .values(
            artifact_prefix=build.artifact_prefix,
            tokenizer_prefix=build.tokenizer_prefix,
            info=dict(build.info),
        )
    ).rowcount


def set_revision_failed(conn: Connection, revision_id: str, failure: Failure, now: float) -> Revision:
    """Mark it failed, and its upload too unless that was verified before. A no-op when it ended already."""
    _lock_jobs(conn, revision_id)
    conn.execute(
        sa.update(revisions)
        .where(revisions.c.id == revision_id, revisions.c.state.in_(revisions_before(RevisionState.FAILED)))
        .values(state=RevisionState.FAILED, failure_code=failure.code, failure_message=failure.message)
    )
    conn.execute(
        sa.update(uploads)
        .where(uploads.c.revision_id == revision_id, uploads.c.state.in_(uploads_before(UploadState.FAILED)))
        .values(
            state=UploadState.FAILED,
            failure_code=failure.code,
            failure_message=failure.message,
            updated_at=now,
        )
    )
    return load_revision(conn, revision_id)


def _lock_jobs(conn: Connection, revision_id: str) -> None:
    """Take locks in one order, job before revision before upload, so that writers can not deadlock."""
    conn.execute(sa.select(jobs.c.id).where(jobs.c.revision_id == revision_id).with_for_update())


def _select(
    conn: Connection, where: sa.ColumnElement[bool], limit: int | None = None
) -> tuple[Revision, ...]:
    query = sa.select(revisions).where(where).order_by(revisions.c.model_id, revisions.c.number.desc())
    rows = conn.execute(query.limit(limit)).mappings().all()
    files: dict[str, list[RevisionFile]] = {row["id"]: [] for row in rows}
    found = conn.execute(
        sa.select(revision_files)
        .where(revision_files.c.revision_id.in_(files))
        .order_by(revision_files.c.revision_id, revision_files.c.position)
    ).mappings()
    for row in found:
        files[row["revision_id"]].append(
            RevisionFile(row["name"], row["size_bytes"], row["sha256"], row["blob_key"])
        )
    return tuple(_revision(row, tuple(files[row["id"]])) for row in rows)


def _revision(row: Any, files: tuple[RevisionFile, ...]) -> Revision:
    build = None
    if row["build_key"] is not None:
        build = Build(row["build_key"], row["artifact_prefix"], row["tokenizer_prefix"], row["info"])
    failure = None
    if row["failure_code"] is not None:
        failure = Failure(row["failure_code"], row["failure_message"])
    return Revision(
        id=row["id"],
        tenant_id=row["tenant_id"],
        model_id=row["model_id"],
        number=row["number"],
        state=RevisionState(row["state"]),
        files=files,
        options=row["options"],
        failure=failure,
        build=build,
        created_at=row["created_at"],
        ready_at=row["ready_at"],
    )
