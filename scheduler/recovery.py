"""What a starting scheduler does about its predecessor: end what still runs, close the rows of the rest."""

from __future__ import annotations

import structlog

from common.wire import ReplicaState
from scheduler.actor import Actor
from scheduler.members import Member
from scheduler.placement import Footprint
from storage import leases, replicas
from storage.records import Replica

log = structlog.get_logger()


def recover(actor: Actor, now: float) -> None:
    """Run once, before the loop. Replicas still alive become draining members; the others' rows are closed.

    A replica that went unseen is billed until its last bill: what it did after that is not known.
    """
    adopted = set(actor.launcher.adopt_leftovers())
    with actor.database.read() as conn:
        rows = replicas.list_replicas(conn)
    for row in rows:
        if row.id in adopted:
            _drain(actor, row, now)
        else:
            _close(actor, row)
    known = {m.replica_id for m in actor.fleet}
    for lease in leases.live_replicas(actor.redis, None):
        if lease.replica_id not in known or lease.replica_id in adopted:
            leases.drop_replica_lease(actor.redis, lease.deployment_id, lease.replica_id)
    actor.meter(now)
    if rows:
        log.info("predecessor_replicas_found", closed=len(rows) - len(known), draining=len(known))


def _drain(actor: Actor, row: Replica, now: float) -> None:
    member = Member(
        replica_id=row.id,
        deployment_id=row.deployment_id,
        tenant_id=row.tenant_id,
        revision_id=row.revision_id,
        endpoint=None,
        footprint=Footprint(row.revision_id, 0, 0, 0.0),
        state=row.state,
        recorded=row.state,
        since=now,
        wanted_at=row.created_at,
        launched_at=row.created_at,
        ready_at=row.ready_at,
    )
    member.enter(ReplicaState.DRAINING, now, "left by an earlier scheduler")
    actor.fleet.add(member)
    actor.record(member)


def _close(actor: Actor, row: Replica) -> None:
    last_seen = max(at for at in (row.created_at, row.ready_at, row.metered_until) if at is not None)
    with actor.database.write() as conn:
        replicas.set_replica_state(conn, row.id, ReplicaState.GONE, last_seen, "went with its scheduler")
