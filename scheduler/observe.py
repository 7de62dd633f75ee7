"""What the control loop looks at once a tick: deployments and builds in SQL, wakes and holds in Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis import Redis

from scheduler.placement import DoesNotFit, KvShape
from storage import deployments, leases
from storage.db import Database
from storage.records import Build, Deployment, DeploymentState
from storage.revisions import load_revision


@dataclass(frozen=True, slots=True)
class World:
    """One look. `wakes` holds the time of a deployment's first unanswered wake, `held` its held requests."""

    at: float
    deployments: tuple[Deployment, ...]
    builds: Mapping[str, Build]
    wakes: Mapping[str, float]
    held: Mapping[str, int]

    @property
    def active(self) -> tuple[Deployment, ...]:
        return tuple(d for d in self.deployments if d.state is DeploymentState.ACTIVE)

    @property
    def deleting(self) -> tuple[Deployment, ...]:
        return tuple(d for d in self.deployments if d.state is DeploymentState.DELETING)


def observe(database: Database, redis: Redis, known_builds: Mapping[str, Build], now: float) -> World:
    """Read the world; `builds` are by revision, and those in `known_builds` are not read again.

    Raises: SQLAlchemyError, RedisError: a store can't be reached; nothing is decided on half a look.
    """
    builds = {}
    with database.read() as conn:
        found = deployments.list_deployments(conn, None, include_deleting=True)
        for revision_id in {d.revision_id for d in found}:
            build = known_builds.get(revision_id) or load_revision(conn, revision_id).build
            if build is not None:
                builds[revision_id] = build
    wakes = leases.waiting_wakes(redis)
    held = {d.id: leases.held_requests(redis, d.id, now) for d in found}
    return World(now, found, builds, wakes, held)


@dataclass(frozen=True, slots=True)
class ServingShape:
    """What a build says about serving it; the worker writes these facts into `Build.info`."""

    weights_bytes: int
    max_batched_tokens: int
    kv: KvShape


def serving_shape(build: Build) -> ServingShape:
    """Raises: DoesNotFit: the build lacks a fact or has it in an unknown form."""
    info: Mapping[str, Any] = build.info
    try:
        return ServingShape(
            weights_bytes=int(info["weights_bytes"]),
            max_batched_tokens=int(info["max_batched_tokens"]),
            kv=KvShape(
                bytes_per_block=int(info["kv_bytes_per_block"]),
                block_size=int(info["block_size"]),
                max_context=int(info["max_context"]),
                max_sequences=int(info["max_sequences"]),
            ),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DoesNotFit(f"build {build.build_key[:12]} does not say how to serve it: {error!r}") from error
