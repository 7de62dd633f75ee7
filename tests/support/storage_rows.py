"""Rows that tests of the platform start from, made through storage's own functions."""

from __future__ import annotations

import hashlib

from common.wire import ReplicaState
from storage import deployments, jobs, models, replicas, uploads
from storage.db import Connection
from storage.keys import create_tenant
from storage.records import (
    Build,
    Deployment,
    FileSpec,
    Job,
    Replica,
    Revision,
    ScalingPolicy,
    Tenant,
    Upload,
)

NOW = 1_700_000_000.0


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def a_tenant(conn: Connection, name: str = "acme", spend_cap_nano_usd: int | None = None) -> Tenant:
    return create_tenant(conn, name, NOW, spend_cap_nano_usd=spend_cap_nano_usd)


def a_file(name: str = "model.safetensors", content: str = "weights") -> FileSpec:
    return FileSpec(name, len(content), digest(content))


def an_upload(conn: Connection, tenant: Tenant, model: str = "tiny", *files: FileSpec) -> Upload:
    """A created upload; without `files`, of one file of one part."""
    return uploads.create_upload(conn, tenant.id, model, files or (a_file(),), {"dtype": "f32"}, NOW)


def send_parts(conn: Connection, upload: Upload) -> None:
    """Note every part that is still missing, as if its bytes had come."""
    for file, number in uploads.missing_parts(conn, upload.tenant_id, upload.id):
        length = min(file.part_size_bytes, file.size_bytes - (number - 1) * file.part_size_bytes)
        uploads.record_part(
            conn, upload.tenant_id, upload.id, file.id, number, length, digest(f"{number}"), NOW
        )


def a_job(conn: Connection, tenant: Tenant, model: str = "tiny", *files: FileSpec) -> Job:
    """A queued compile job with its upload (verifying) and revision (uploaded)."""
    upload = an_upload(conn, tenant, model, *files)
    send_parts(conn, upload)
    _, job = uploads.complete_upload(conn, tenant.id, upload.id, NOW)
    return job


def a_build(key: str = "b1") -> Build:
    return Build(key, f"artifacts/t/{key}/p/artifact", f"artifacts/t/{key}/p/tokenizer", {"parameters": 7})


def a_ready_revision(
    conn: Connection, tenant: Tenant, model: str = "tiny", *files: FileSpec, build_key: str = "b1"
) -> Revision:
    job = a_job(conn, tenant, model, *files)
    claim = jobs.claim_job(conn, job.id, "wrk_1", NOW, 30.0)
    assert claim is not None, "a queued job can be claimed"
    revision = models.set_revision_ready(conn, job.revision_id, a_build(build_key), NOW)
    jobs.succeed(conn, job.id, claim.token, NOW)
    return revision


def a_deployment(conn: Connection, tenant: Tenant, name: str = "chat", model: str = "tiny") -> Deployment:
    revision = a_ready_revision(conn, tenant, model)
    return deployments.create_deployment(conn, tenant.id, name, revision, ScalingPolicy(), 4096, NOW)


def a_ready_replica(conn: Connection, deployment: Deployment, ready_at: float = NOW) -> Replica:
    replica = replicas.insert_replica(conn, deployment, NOW)
    return replicas.set_replica_state(conn, replica.id, ReplicaState.READY, ready_at)
