"""Replica rows, their history and their bill: what was started, when each state began, what is paid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.ids import Kind, new_id
from common.wire import ReplicaState
from storage.billing.rating import MAX_BEHIND_S
from storage.errors import IllegalTransition, ReplicaNotFound
from storage.ledger.append import append
from storage.records import Deployment, Meter, Replica, ReplicaChange, UsageEvent
from storage.states import replicas_before
from storage.tables import deployments, replica_states, replicas


def insert_replica(
    conn: Connection,
    deployment: Deployment,
    now: float,
    *,
    replica_id: str | None = None,
    socket_path: str | None = None,
) -> Replica:
    """Record a replica in state `starting`; do it before the process is started, so that none is unknown."""
    replica_id = replica_id or new_id(Kind.REPLICA)
    conn.execute(
        sa.insert(replicas).values(
            id=replica_id,
            tenant_id=deployment.tenant_id,
            deployment_id=deployment.id,
            revision_id=deployment.revision_id,
            state=ReplicaState.STARTING,
            socket_path=socket_path,
            created_at=now,
            meter_epoch=0,
        )
    )
    replica = load_replica(conn, replica_id)
    _note(conn, replica, now)
    return replica


def load_replica(conn: Connection, replica_id: str) -> Replica:
    """Raises: ReplicaNotFound."""
    row = conn.execute(sa.select(replicas).where(replicas.c.id == replica_id)).mappings().first()
    if row is None:
        raise ReplicaNotFound(replica_id)
    return _replica(row)


def set_replica_pid(conn: Connection, replica_id: str, pid: int, socket_path: str | None = None) -> None:
    """Note the process behind a replica, so that a restarted scheduler finds or reaps it."""
    values: dict[str, Any] = {"pid": pid}
    if socket_path is not None:
        values["socket_path"] = socket_path
    conn.execute(sa.update(replicas).where(replicas.c.id == replica_id).values(**values))


def set_replica_state(
    conn: Connection, replica_id: str, state: ReplicaState, now: float, reason: str | None = None
) -> Replica:
    """Move a replica on and note it in its history; a no-op when it is there already.

    Raises: ReplicaNotFound, IllegalTransition.
    """
    values: dict[str, Any] = {"state": state, "reason": reason}
    if state is ReplicaState.READY:
        values |= {"ready_at": now, "metered_until": now}
    if state is ReplicaState.GONE:
        values["gone_at"] = now
    done = conn.execute(
        sa.update(replicas)
        .where(replicas.c.id == replica_id, replicas.c.state.in_(replicas_before(state)))
        .values(**values)
    )
    replica = load_replica(conn, replica_id)
    if done.rowcount:
        _note(conn, replica, now)
    elif replica.state is not state:
        raise IllegalTransition("replica", replica_id, replica.state, state)
    return replica


def list_replicas(
    conn: Connection, deployment_id: str | None = None, states: Collection[ReplicaState] | None = None
) -> tuple[Replica, ...]:
    """Oldest first; of one deployment or of all, in `states` or (by default) in any but `gone`."""
    wanted = tuple(s for s in ReplicaState if s is not ReplicaState.GONE) if states is None else tuple(states)
    query = sa.select(replicas).where(replicas.c.state.in_(wanted))
    if deployment_id is not None:
        query = query.where(replicas.c.deployment_id == deployment_id)
    return tuple(_replica(row) for row in conn.execute(query.order_by(replicas.c.id)).mappings())


def replica_history(
    conn: Connection, tenant_id: str, since: float, until: float, deployment_id: str | None = None
) -> tuple[ReplicaChange, ...]:
    """Every state change of the replicas that lived within [since, until), oldest first.

    Changes before `since` of those replicas are included, so that `replica_chart` knows where each one stood.
    """
    lived = sa.select(replicas.c.id).where(
        replicas.c.tenant_id == tenant_id,
        replicas.c.created_at < until,
        sa.or_(replicas.c.gone_at.is_(None), replicas.c.gone_at >= since),
    )
    if deployment_id is not None:
        lived = lived.where(replicas.c.deployment_id == deployment_id)
    rows = conn.execute(
        sa.select(replica_states)
        .where(replica_states.c.replica_id.in_(lived), replica_states.c.at < until)
        .order_by(replica_states.c.at, replica_states.c.replica_id, replica_states.c.seq)
    )
    return tuple(
        ReplicaChange(r.replica_id, r.deployment_id, ReplicaState(r.state), r.reason, r.at) for r in rows
    )


def meter_replica(conn: Connection, replica_id: str, now: float, price_version: str) -> int:
    """Bill the whole seconds since the last bill, from `ready` to `gone`; the seconds billed.

    The fraction is carried to the next call, so a replica's bills add up to its life rounded down. A
    replica that never got ready costs nothing. Call it each minute or so, and once after `gone`.
    """
    replica = load_replica(conn, replica_id)
    if replica.metered_until is None:
        return 0
    end = now if replica.gone_at is None else replica.gone_at
    seconds = int(end - replica.metered_until)
    if seconds < 1:
        return 0
    won = conn.execute(
        sa.update(replicas)
        .where(replicas.c.id == replica_id, replicas.c.metered_until == replica.metered_until)
        .values(metered_until=replica.metered_until + seconds, meter_epoch=replicas.c.meter_epoch + 1)
        .returning(replicas.c.meter_epoch)
    ).scalar_one_or_none()
    if won is None:
        return 0
    name = conn.execute(
        sa.select(deployments.c.name).where(deployments.c.id == replica.deployment_id)
    ).scalar_one()
    event = UsageEvent(
        tenant_id=replica.tenant_id,
        request_id=replica.id,
        meter=Meter.REPLICA_SECONDS,
        quantity=seconds,
        price_version=price_version,
        model=name,
        occurred_at=max(replica.metered_until, now - MAX_BEHIND_S),
        deployment_id=replica.deployment_id,
        attempt_epoch=won - 1,
    )
    append(conn, event, now=now)
    return seconds


def unmetered_replicas(conn: Connection) -> tuple[Replica, ...]:
    """Replicas whose end is not billed yet although they are gone (the scheduler died in between)."""
    rows = conn.execute(
        sa.select(replicas)
        .where(replicas.c.state == ReplicaState.GONE, replicas.c.gone_at - replicas.c.metered_until >= 1.0)
        .order_by(replicas.c.id)
    ).mappings()
    return tuple(_replica(row) for row in rows)


def _note(conn: Connection, replica: Replica, now: float) -> None:
    count = sa.select(sa.func.count()).where(replica_states.c.replica_id == replica.id)
    conn.execute(
        sa.insert(replica_states).values(
            tenant_id=replica.tenant_id,
            replica_id=replica.id,
            seq=conn.execute(count).scalar_one() + 1,
            deployment_id=replica.deployment_id,
            state=replica.state,
            reason=replica.reason,
            at=now,
        )
    )


def _replica(row: Any) -> Replica:
    return Replica(
        id=row["id"],
        tenant_id=row["tenant_id"],
        deployment_id=row["deployment_id"],
        revision_id=row["revision_id"],
        state=ReplicaState(row["state"]),
        pid=row["pid"],
        socket_path=row["socket_path"],
        reason=row["reason"],
        created_at=row["created_at"],
        ready_at=row["ready_at"],
        gone_at=row["gone_at"],
        metered_until=row["metered_until"],
    )
