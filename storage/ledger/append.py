"""The only writer of the ledger."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import Connection

from common.errors import InvalidInput
from storage.billing.rating import event_time_problem
from storage.db import is_writing
from storage.errors import EventTimeRejected, LedgerConflict
from storage.ledger.chain import GENESIS, id_of, next_row, same_fact, to_ms
from storage.records import LedgerRow, Meter, UsageEvent
from storage.tables import api_keys, ledger, ledger_heads
from storage.write import insert_if_absent

log = structlog.get_logger()


def append(conn: Connection, event: UsageEvent, *, now: float | None = None) -> bool:
    """Record `event`, priced by its own price version; False when it is recorded already (a replay).

    Serial within a tenant: the head row is locked, so `conn` must come from `write()`. `now` is the time of
    recording; given, it also refuses times that can't be believed.
    Raises: LedgerConflict: the id is recorded with another body (logged; the first stands); InvalidInput: the
        quantity is not positive; EventTimeRejected; UnknownPriceVersion.
    """
    assert is_writing(conn), "the ledger is written in a write() transaction"
    if event.quantity <= 0:
        raise InvalidInput(f"a usage event's quantity is positive, not {event.quantity}", param="quantity")
    if now is not None and (problem := event_time_problem(event.occurred_at, now)):
        raise EventTimeRejected(problem)
    head = _lock_head(conn, event.tenant_id)
    if (known := _find(conn, id_of(event))) is not None:
        return _refuse_or_replay(event, known)
    row = next_row(head.sequence, head.hash, event, event.occurred_at if now is None else now)
    _insert(conn, row, head.total_nano_usd + row.amount_nano_usd)
    return True


def row_from(row: Any) -> LedgerRow:
    """A database row as a record."""
    event = UsageEvent(
        tenant_id=row["tenant_id"],
        request_id=row["request_id"],
        meter=Meter(row["meter"]),
        quantity=row["quantity"],
        price_version=row["price_version"],
        model=row["model"],
        occurred_at=row["occurred_ms"] / 1000,
        deployment_id=row["deployment_id"],
        api_key_id=row["api_key_id"],
        attempt_epoch=row["attempt_epoch"],
    )
    return LedgerRow(
        sequence=row["sequence"],
        event_id=row["event_id"],
        event=event,
        amount_nano_usd=row["amount_nano_usd"],
        recorded_at=row["recorded_ms"] / 1000,
        prev_hash=row["prev_hash"],
        hash=row["hash"],
    )


def _lock_head(conn: Connection, tenant_id: str) -> sa.Row[Any]:
    first = {"tenant_id": tenant_id, "sequence": 0, "hash": GENESIS, "total_nano_usd": 0}
    insert_if_absent(conn, ledger_heads, first, [ledger_heads.c.tenant_id])
    return conn.execute(
        sa.select(ledger_heads).where(ledger_heads.c.tenant_id == tenant_id).with_for_update()
    ).one()


def _find(conn: Connection, identifier: str) -> LedgerRow | None:
    row = conn.execute(sa.select(ledger).where(ledger.c.event_id == identifier)).mappings().first()
    return None if row is None else row_from(row)


def _refuse_or_replay(event: UsageEvent, known: LedgerRow) -> bool:
    if same_fact(event, known.event):
        return False
    log.error(
        "ledger_event_refused",
        event_id=known.event_id,
        tenant_id=event.tenant_id,
        request_id=event.request_id,
        meter=str(event.meter),
        recorded_quantity=known.event.quantity,
        refused_quantity=event.quantity,
    )
    raise LedgerConflict(known.event_id)


def _insert(conn: Connection, row: LedgerRow, total_nano_usd: int) -> None:
    event = row.event
    conn.execute(
        sa.insert(ledger).values(
            tenant_id=event.tenant_id,
            sequence=row.sequence,
            event_id=row.event_id,
            request_id=event.request_id,
            meter=event.meter,
            attempt_epoch=event.attempt_epoch,
            quantity=event.quantity,
            amount_nano_usd=row.amount_nano_usd,
            price_version=event.price_version,
            deployment_id=event.deployment_id,
            model=event.model,
            api_key_id=event.api_key_id,
            occurred_ms=to_ms(event.occurred_at),
            recorded_ms=to_ms(row.recorded_at),
            prev_hash=row.prev_hash,
            hash=row.hash,
        )
    )
    conn.execute(
        sa.update(ledger_heads)
        .where(ledger_heads.c.tenant_id == event.tenant_id)
        .values(sequence=row.sequence, hash=row.hash, total_nano_usd=total_nano_usd)
    )
    if event.api_key_id is not None:
        conn.execute(
            sa.update(api_keys)
            .where(api_keys.c.id == event.api_key_id, api_keys.c.tenant_id == event.tenant_id)
            .values(spent_nano_usd=api_keys.c.spent_nano_usd + row.amount_nano_usd)
        )
