"""Reservations: the highest cost of a running request set aside, then settled exactly once.

The gateway reserves, reports counts while it renews the lease, and settles. When it dies, the lease expires
and the scheduler settles from the last reported counts. Whoever closes the reservation first wins.
"""

from __future__ import annotations

import itertools
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import Connection

from storage.billing.money import exact_usd
from storage.billing.rating import token_quantities
from storage.errors import LedgerConflict, RequestNotFound, SpendCapReached
from storage.ledger.append import append
from storage.records import Reservation, ReservationState, TokenCounts, UsageEvent
from storage.tables import api_keys, ledger_heads, reservations, tenants

log = structlog.get_logger()


def reserve(
    conn: Connection,
    *,
    request_id: str,
    tenant_id: str,
    model: str,
    price_version: str,
    max_cost_nano_usd: int,
    now: float,
    lease_s: float,
    api_key_id: str | None = None,
    deployment_id: str | None = None,
    attempt_epoch: int = 0,
    counts: TokenCounts | None = None,
) -> Reservation:
    """Set `max_cost_nano_usd` aside under the tenant's and the key's spend caps, running requests counted.

    `model` is the deployment's name, as it will stand on the bill.
    Raises: SpendCapReached.
    """
    _check_caps(conn, tenant_id, api_key_id, max_cost_nano_usd)
    used = counts or TokenCounts()
    conn.execute(
        sa.insert(reservations).values(
            request_id=request_id,
            tenant_id=tenant_id,
            api_key_id=api_key_id,
            deployment_id=deployment_id,
            model=model,
            state=ReservationState.OPEN,
            price_version=price_version,
            attempt_epoch=attempt_epoch,
            max_cost_nano_usd=max_cost_nano_usd,
            **_count_columns(used),
            created_at=now,
            lease_expires_at=now + lease_s,
        )
    )
    return get_reservation(conn, request_id)


def get_reservation(conn: Connection, request_id: str) -> Reservation:
    """Raises: RequestNotFound."""
    row = (
        conn.execute(sa.select(reservations).where(reservations.c.request_id == request_id))
        .mappings()
        .first()
    )
    if row is None:
        raise RequestNotFound(request_id)
    return _reservation(row)


def call_id(request_id: str, number: int) -> str:
    """The id under which call `number` of a request is reserved: a request has one call a prompt."""
    return f"{request_id}.{number}" if number else request_id


def request_of(call_id: str) -> str:
    """The request that a call belongs to."""
    return call_id.partition(".")[0]


def calls_of(conn: Connection, request_id: str) -> tuple[Reservation, ...]:
    """Every call's reservation, in the order of the prompts.

    Raises: RequestNotFound.
    """
    found = [get_reservation(conn, request_id)]
    for number in itertools.count(1):
        try:
            found.append(get_reservation(conn, call_id(request_id, number)))
        except RequestNotFound:
            break
    return tuple(found)


def update_reservation(
    conn: Connection,
    request_id: str,
    *,
    now: float,
    lease_s: float,
    replica_id: str | None = None,
    counts: TokenCounts | None = None,
) -> bool:
    """Renew the lease and note what was reported; False when the reservation is closed. Counts never fall."""
    values: dict[str, Any] = {"lease_expires_at": now + lease_s}
    if replica_id is not None:
        values["replica_id"] = replica_id
    if counts is not None:
        for name, count in _count_columns(counts).items():
            column = reservations.c[name]
            values[name] = sa.case((column < count, count), else_=column)
    return conn.execute(sa.update(reservations).where(_open(request_id)).values(**values)).rowcount == 1


def settle(conn: Connection, request_id: str, counts: TokenCounts, now: float) -> bool:
    """Close the reservation and bill `counts`, in one transaction; False when it was closed before.

    Events occur at the request's start and are priced by the version fixed then.
    Raises: RequestNotFound.
    """
    if not _close(conn, request_id, ReservationState.SETTLED, now, counts):
        return False
    reservation = get_reservation(conn, request_id)
    for meter, quantity in token_quantities(counts):
        event = UsageEvent(
            tenant_id=reservation.tenant_id,
            request_id=request_id,
            meter=meter,
            quantity=quantity,
            price_version=reservation.price_version,
            model=reservation.model,
            occurred_at=reservation.created_at,
            deployment_id=reservation.deployment_id,
            api_key_id=reservation.api_key_id,
            attempt_epoch=reservation.attempt_epoch,
        )
        try:
            append(conn, event, now=max(now, event.occurred_at))
        except LedgerConflict as error:
            log.error("settlement_refused", request_id=request_id, event_id=error.event_id)
    return True


def release(conn: Connection, request_id: str, now: float) -> bool:
    """Close the reservation without a bill (nothing was computed); False when it was closed before.

    Raises: RequestNotFound.
    """
    return _close(conn, request_id, ReservationState.RELEASED, now, None)


def expired_reservations(conn: Connection, now: float, limit: int = 100) -> tuple[Reservation, ...]:
    """Open reservations whose gateway stopped renewing: settle each from its (or the replica's) counts."""
    rows = conn.execute(
        sa.select(reservations)
        .where(reservations.c.state == ReservationState.OPEN, reservations.c.lease_expires_at <= now)
        .order_by(reservations.c.lease_expires_at, reservations.c.request_id)
        .limit(limit)
    ).mappings()
    return tuple(_reservation(row) for row in rows)


def open_reservations(conn: Connection, tenant_id: str) -> tuple[Reservation, ...]:
    """The tenant's running requests, oldest first."""
    rows = conn.execute(
        sa.select(reservations)
        .where(reservations.c.tenant_id == tenant_id, reservations.c.state == ReservationState.OPEN)
        .order_by(reservations.c.created_at, reservations.c.request_id)
    ).mappings()
    return tuple(_reservation(row) for row in rows)


def _check_caps(conn: Connection, tenant_id: str, api_key_id: str | None, max_cost: int) -> None:
    # FOR NO KEY UPDATE: reservations of a tenant queue up here, while inserts that refer to the tenant do
    # not.
    tenant_cap = conn.execute(
        sa.select(tenants.c.spend_cap_nano_usd)
        .where(tenants.c.id == tenant_id)
        .with_for_update(key_share=True)
    ).scalar_one_or_none()
    if tenant_cap is not None:
        spent = sa.select(ledger_heads.c.total_nano_usd).where(ledger_heads.c.tenant_id == tenant_id)
        _check_cap(conn, "tenant", tenant_cap, spent, reservations.c.tenant_id == tenant_id, max_cost)
    if api_key_id is None:
        return
    mine = sa.and_(api_keys.c.id == api_key_id, api_keys.c.tenant_id == tenant_id)
    key_cap = conn.execute(sa.select(api_keys.c.spend_cap_nano_usd).where(mine)).scalar_one_or_none()
    if key_cap is not None:
        spent = sa.select(api_keys.c.spent_nano_usd).where(mine)
        _check_cap(conn, "key", key_cap, spent, reservations.c.api_key_id == api_key_id, max_cost)


def _check_cap(
    conn: Connection,
    whose: str,
    cap: int,
    spent: sa.Select[tuple[int]],
    whose_open: sa.ColumnElement[bool],
    max_cost: int,
) -> None:
    reserved = sa.select(sa.func.sum(reservations.c.max_cost_nano_usd)).where(
        reservations.c.state == ReservationState.OPEN, whose_open
    )
    # One statement, so that a request settling meanwhile is counted as reserved or as spent, never as
    # neither.
    row = conn.execute(sa.select(spent.scalar_subquery(), reserved.scalar_subquery())).one()
    room = cap - int(row[0] or 0) - int(row[1] or 0)
    if max_cost > room:
        left = exact_usd(max(room, 0))
        text = f"this request may cost {exact_usd(max_cost)} USD; the {whose}'s spend cap leaves {left} USD"
        raise SpendCapReached(text)


def _open(request_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(reservations.c.request_id == request_id, reservations.c.state == ReservationState.OPEN)


def _close(
    conn: Connection, request_id: str, state: ReservationState, now: float, counts: TokenCounts | None
) -> bool:
    values: dict[str, Any] = {"state": state, "closed_at": now}
    if counts is not None:
        values |= _count_columns(counts)
    if conn.execute(sa.update(reservations).where(_open(request_id)).values(**values)).rowcount == 1:
        return True
    get_reservation(conn, request_id)
    return False


def _count_columns(counts: TokenCounts) -> dict[str, int]:
    return {
        "prompt_tokens": counts.prompt_tokens,
        "cached_tokens": counts.cached_tokens,
        "completion_tokens": counts.completion_tokens,
    }


def _reservation(row: Any) -> Reservation:
    return Reservation(
        request_id=row["request_id"],
        tenant_id=row["tenant_id"],
        api_key_id=row["api_key_id"],
        deployment_id=row["deployment_id"],
        model=row["model"],
        replica_id=row["replica_id"],
        state=ReservationState(row["state"]),
        price_version=row["price_version"],
        attempt_epoch=row["attempt_epoch"],
        max_cost_nano_usd=row["max_cost_nano_usd"],
        counts=TokenCounts(row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"]),
        created_at=row["created_at"],
        lease_expires_at=row["lease_expires_at"],
    )
