"""Reading the ledger: rows, sums by day and model, and the check of the chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy import Connection

from storage.ledger.append import row_from
from storage.ledger.chain import ChainReport, check_rows, to_ms
from storage.records import LedgerRow, Meter
from storage.tables import ledger, ledger_heads

_DAY_MS = 86_400_000
_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class UsageLine:
    """What one meter counted for one model on one UTC day (`2026-01-31`), and what it cost."""

    day: str
    model: str
    meter: Meter
    quantity: int
    amount_nano_usd: int


def list_ledger(
    conn: Connection, tenant_id: str, after_sequence: int = 0, limit: int = 1000
) -> tuple[LedgerRow, ...]:
    """Rows in order, after `after_sequence`."""
    rows = conn.execute(
        sa.select(ledger)
        .where(ledger.c.tenant_id == tenant_id, ledger.c.sequence > after_sequence)
        .order_by(ledger.c.sequence)
        .limit(limit)
    ).mappings()
    return tuple(row_from(row) for row in rows)


def events_of_request(conn: Connection, tenant_id: str, request_id: str) -> tuple[LedgerRow, ...]:
    """Everything billed for one request."""
    rows = conn.execute(
        sa.select(ledger)
        .where(ledger.c.tenant_id == tenant_id, ledger.c.request_id == request_id)
        .order_by(ledger.c.sequence)
    ).mappings()
    return tuple(row_from(row) for row in rows)


def usage_by_day_and_model(
    conn: Connection, tenant_id: str, since: float, until: float
) -> tuple[UsageLine, ...]:
    """Sums of the events that occurred within [since, until), by UTC day, model and meter."""
    day = (ledger.c.occurred_ms - ledger.c.occurred_ms % _DAY_MS).label("day")
    rows = conn.execute(
        sa.select(
            day,
            ledger.c.model,
            ledger.c.meter,
            sa.func.sum(ledger.c.quantity).label("quantity"),
            sa.func.sum(ledger.c.amount_nano_usd).label("amount"),
        )
        .where(
            ledger.c.tenant_id == tenant_id,
            ledger.c.occurred_ms >= to_ms(since),
            ledger.c.occurred_ms < to_ms(until),
        )
        .group_by(day, ledger.c.model, ledger.c.meter)
        .order_by(day, ledger.c.model, ledger.c.meter)
    )
    return tuple(
        UsageLine(_iso_day(r.day), r.model, Meter(r.meter), int(r.quantity), int(r.amount)) for r in rows
    )


def spent_nano_usd(conn: Connection, tenant_id: str) -> int:
    """All that the tenant was ever billed: the head's running total, which `verify_chain` checks."""
    total = conn.execute(
        sa.select(ledger_heads.c.total_nano_usd).where(ledger_heads.c.tenant_id == tenant_id)
    ).scalar_one_or_none()
    return total or 0


def verify_chain(conn: Connection, tenant_id: str) -> ChainReport:
    """Recompute every hash, id, price and the total of a tenant's ledger. Reads all of it."""
    report, last_hash = check_rows(_all_rows(conn, tenant_id))
    if not report.is_intact:
        return report
    head = conn.execute(sa.select(ledger_heads).where(ledger_heads.c.tenant_id == tenant_id)).first()
    if head is None:
        return report if report.rows == 0 else _broken(report, "the head is missing")
    if (head.sequence, head.hash) != (report.rows, last_hash):
        return _broken(report, f"the head is at row {head.sequence}, the last row is {report.rows}")
    if head.total_nano_usd != report.total_nano_usd:
        return _broken(
            report, f"the head's total is {head.total_nano_usd}, the rows' {report.total_nano_usd}"
        )
    return report


def _broken(report: ChainReport, problem: str) -> ChainReport:
    return ChainReport(report.rows, report.total_nano_usd, report.rows + 1, problem)


def _all_rows(conn: Connection, tenant_id: str) -> Iterator[LedgerRow]:
    last = 0
    while page := list_ledger(conn, tenant_id, last, _PAGE):
        yield from page
        last = page[-1].sequence


def _iso_day(day_ms: int) -> str:
    return datetime.fromtimestamp(int(day_ms) / 1000, UTC).date().isoformat()
