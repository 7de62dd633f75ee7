"""Carries out what was decided: rows, leases, processes. Keeps the three in step even when a store fails.

Order matters: the row before the process (none is unknown), the lease before the row once it is ready (a held
request waits for it), the lease away before a drain (nothing new arrives).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import structlog
from redis import Redis
from redis.exceptions import RedisError

from common.ids import Kind, new_id
from common.wire import ReplicaState, ReplicaStats
from scheduler.integrity import check_listed_files
from scheduler.launchers import BecameReady, Exited, Launcher, LaunchFailed, ReplicaSpec
from scheduler.members import Fleet, Member, cold_start_phases
from scheduler.placing import Sizing
from scheduler.poller import Poller
from storage import deployments, leases, replicas
from storage.billing import default_price_book
from storage.blobs import BlobStore
from storage.db import Database
from storage.leases import ReplicaLease
from storage.records import Build, Deployment, Failure

log = structlog.get_logger()


@dataclass(slots=True)
class Actor:
    """The hands of the control loop."""

    database: Database
    redis: Redis
    blobs: BlobStore
    launcher: Launcher
    poller: Poller
    fleet: Fleet
    cache_dir: Path
    lease_ttl_s: float

    def start(
        self, deployment: Deployment, build: Build, sizing: Sizing, wanted_at: float, now: float
    ) -> Member:
        """Start one replica of the deployment's current revision.

        Raises:
            ArtifactDamaged, LaunchFailed, BlobNotFound: nothing runs.
        """
        check_listed_files(self.blobs, build)
        replica_id = new_id(Kind.REPLICA)
        spec = self._spec(replica_id, deployment.id, build, sizing)
        member = Member(
            replica_id=replica_id,
            deployment_id=deployment.id,
            tenant_id=deployment.tenant_id,
            revision_id=deployment.revision_id,
            endpoint=None,
            footprint=sizing.footprint,
            state=ReplicaState.STARTING,
            recorded=ReplicaState.STARTING,
            since=now,
            wanted_at=wanted_at,
            launched_at=now,
        )
        with self.database.write() as conn:
            replicas.insert_replica(conn, deployment, now, replica_id=replica_id)
        self.fleet.add(member)
        try:
            member.endpoint = self.launcher.launch(spec)
        except LaunchFailed as error:
            self.exited(member, Exited(replica_id, is_crash=True, detail=str(error), at=now))
            raise
        if member.endpoint.pid is not None:
            with self.database.write() as conn:
                replicas.set_replica_pid(conn, replica_id, member.endpoint.pid, member.endpoint.socket_path)
        log.info("replica_started", replica_id=replica_id, deployment_id=deployment.id)
        return member

    def ready(self, member: Member, event: BecameReady) -> None:
        """Let requests in at once, then record it."""
        if member.state is not ReplicaState.STARTING:
            return
        member.enter(ReplicaState.READY, event.at)
        member.ready_at = event.at
        member.phases_s = cold_start_phases(member, event.at, event.stats.phases_s)
        self.refresh(member, event.stats, event.at)
        leases.clear_wake(self.redis, member.deployment_id)
        self.record(member)
        cold_start_s = event.at - member.wanted_at
        log.info("replica_became_ready", replica_id=member.replica_id, cold_start_s=round(cold_start_s, 4))

    def refresh(self, member: Member, stats: ReplicaStats, at: float) -> None:
        """Take a report in, and renew the lease of a replica that takes requests."""
        member.stats, member.stats_at, member.silent_since = stats, at, None
        if member.state is ReplicaState.READY:
            leases.write_replica_lease(self.redis, _lease(member, stats), self.lease_ttl_s, at)

    def drain(self, member: Member, reason: str, now: float) -> None:
        """Route nothing to it any more, let its streams finish, and have it go."""
        member.enter(ReplicaState.DRAINING, now, reason)
        self._drop_lease(member)
        self.launcher.terminate(member.replica_id)
        self.record(member)
        log.info("replica_drained", replica_id=member.replica_id, reason=reason)

    def kill(self, member: Member, reason: str, now: float) -> None:
        """End it now; its `Exited` follows."""
        if member.state is not ReplicaState.DRAINING:
            member.enter(ReplicaState.DRAINING, now, reason)
            self._drop_lease(member)
        self.launcher.kill(member.replica_id)
        self.record(member)
        log.warning("replica_killed", replica_id=member.replica_id, reason=reason)

    def exited(self, member: Member, event: Exited) -> None:
        """Take the lease away, record and bill the end."""
        reason = event.detail if event.is_crash else member.reason or event.detail
        member.enter(ReplicaState.GONE, event.at, reason)
        member.gone_at = event.at
        self._drop_lease(member)
        if member.endpoint is not None:
            self.poller.forget(member.endpoint)
        self.record(member)
        log.info("replica_exited", replica_id=member.replica_id, is_crash=event.is_crash, detail=event.detail)

    def record(self, member: Member) -> None:
        """Bring the member's row, and at the end its bill, up to its state; then forget a gone one."""
        if member.recorded is not member.state:
            with self.database.write() as conn:
                if member.recorded is ReplicaState.STARTING and member.ready_at is not None:
                    replicas.set_replica_state(conn, member.replica_id, ReplicaState.READY, member.ready_at)
                replicas.set_replica_state(conn, member.replica_id, member.state, member.since, member.reason)
                if member.state is ReplicaState.GONE:
                    replicas.meter_replica(
                        conn, member.replica_id, member.since, default_price_book().version
                    )
            member.recorded = member.state
        if member.state is ReplicaState.GONE:
            self.fleet.remove(member.replica_id)

    def meter(self, now: float) -> None:
        """Bill the seconds since the last time, of every replica and of ends that were not billed."""
        version = default_price_book().version
        serving = (ReplicaState.READY, ReplicaState.DRAINING)
        with self.database.write() as conn:
            ended = [r.id for r in replicas.unmetered_replicas(conn)]
            for replica_id in [*ended, *(m.replica_id for m in self.fleet.alive() if m.recorded in serving)]:
                replicas.meter_replica(conn, replica_id, now, version)

    def note_failure(self, deployment: Deployment, failure: Failure | None, now: float) -> None:
        """Show on the deployment why it has no replica, or that it is well again."""
        if deployment.failure == failure:
            return
        with self.database.write() as conn:
            revision_id = deployment.revision_id
            deployments.set_deployment_failure(conn, deployment.id, failure, now, revision_id=revision_id)

    def _drop_lease(self, member: Member) -> None:
        """End the lease; when Redis is away it expires by itself, and the replica must go all the same."""
        try:
            leases.drop_replica_lease(self.redis, member.deployment_id, member.replica_id)
        except RedisError as error:
            log.warning("lease_drop_failed", replica_id=member.replica_id, error=str(error))

    def _spec(self, replica_id: str, deployment_id: str, build: Build, sizing: Sizing) -> ReplicaSpec:
        local = self.cache_dir / build.build_key
        return ReplicaSpec(
            replica_id=replica_id,
            deployment_id=deployment_id,
            artifact_dir=self.blobs.fetch(build.artifact_prefix, local / "artifact"),
            tokenizer_dir=self.blobs.fetch(build.tokenizer_prefix, local / "tokenizer"),
            kv_blocks=sizing.kv_blocks,
            max_sequences=sizing.max_sequences,
            max_batched_tokens=sizing.max_batched_tokens,
            memory_limit_bytes=sizing.memory_limit_bytes,
        )


def _lease(member: Member, stats: ReplicaStats) -> ReplicaLease:
    assert member.endpoint is not None, "only replicas that this scheduler started get a lease"
    return ReplicaLease(
        replica_id=member.replica_id,
        deployment_id=member.deployment_id,
        revision_id=member.revision_id,
        tenant_id=member.tenant_id,
        socket_path=member.endpoint.socket_path,
        secret=member.endpoint.secret,
        state=ReplicaState.READY,
        running=stats.running,
        waiting=stats.waiting,
        max_sequences=stats.max_sequences,
        kv_blocks_total=stats.kv_blocks_total,
        kv_blocks_used=stats.kv_blocks_used,
        phases_s=member.phases_s,
    )
