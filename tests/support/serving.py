"""Deployments that a scheduler can serve: rows, published build directories, a clock that tests turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from storage import deployments, jobs, models
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.records import Build, Deployment, ScalingPolicy, Tenant
from tests.support.storage_rows import NOW, a_job

SERVING_INFO: Mapping[str, int] = {
    "weights_bytes": 1 << 20,
    "kv_bytes_per_block": 1 << 10,
    "block_size": 16,
    "max_context": 256,
    "max_sequences": 8,
    "max_batched_tokens": 64,
}


class HandClock:
    """A clock that stands still between `turn`s."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def turn(self, seconds: float) -> float:
        self.now += seconds
        return self.now


def published(blobs: DiskBlobs, tenant: Tenant, key: str, behaviour: Mapping[str, object]) -> Build:
    """A build whose artifact directory tells the fake replica how to behave."""
    prefix = f"artifacts/{tenant.id}/{key}/p"
    blobs.put(f"{prefix}/artifact/fake.json", [json.dumps(behaviour).encode()])
    blobs.put(f"{prefix}/tokenizer/tokenizer.json", [b"{}"])
    return Build(key, f"{prefix}/artifact", f"{prefix}/tokenizer", dict(SERVING_INFO))


def deployed(
    database: Database,
    blobs: DiskBlobs,
    tenant: Tenant,
    name: str = "chat",
    policy: ScalingPolicy | None = None,
    *,
    kv_ceiling_tokens: int = 1024,
    info: Mapping[str, int] | None = None,
    **behaviour: object,
) -> Deployment:
    """An active deployment of a ready revision of a model of the same name."""
    build = published(blobs, tenant, f"key-{name}", behaviour)
    if info is not None:
        build = replace(build, info=info)
    with database.write() as conn:
        job = a_job(conn, tenant, name)
        claim = jobs.claim_job(conn, job.id, "wrk_1", NOW, 30.0)
        assert claim is not None, "a queued job can be claimed"
        revision = models.set_revision_ready(conn, job.revision_id, build, NOW)
        jobs.succeed(conn, job.id, claim.token, NOW)
        return deployments.create_deployment(
            conn, tenant.id, name, revision, policy or ScalingPolicy(), kv_ceiling_tokens, NOW
        )
