"""The ledger's arithmetic, pure: derived event ids, canonical bytes, the hash chain and its check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from storage.billing.rating import rate_event
from storage.errors import UnknownPriceVersion
from storage.records import LedgerRow, Meter, UsageEvent

GENESIS = "0" * 64
"""The previous hash of a tenant's first row."""


@dataclass(frozen=True, slots=True)
class ChainReport:
    """Outcome of a check: `broken_at` is the first sequence that does not hold, `problem` says why."""

    rows: int
    total_nano_usd: int
    broken_at: int | None = None
    problem: str | None = None

    @property
    def is_intact(self) -> bool:
        return self.problem is None


def event_id(tenant_id: str, request_id: str, meter: Meter, attempt_epoch: int) -> str:
    """sha256(tenant | request_id | meter | attempt_epoch), hex: all who report a fact derive one id."""
    assert "|" not in tenant_id + request_id, "ids hold no separator"
    return hashlib.sha256(f"{tenant_id}|{request_id}|{meter}|{attempt_epoch}".encode()).hexdigest()


def id_of(event: UsageEvent) -> str:
    return event_id(event.tenant_id, event.request_id, event.meter, event.attempt_epoch)


def same_fact(a: UsageEvent, b: UsageEvent) -> bool:
    """Whether two events with one id bill the same.

    When it was seen, and by whom, is not part of the fact.
    """
    return (a.quantity, a.price_version, a.model, a.deployment_id, a.api_key_id) == (
        b.quantity,
        b.price_version,
        b.model,
        b.deployment_id,
        b.api_key_id,
    )


def next_row(sequence: int, prev_hash: str, event: UsageEvent, recorded_at: float) -> LedgerRow:
    """The row that follows row `sequence`: numbered, priced, hashed. Times are kept to the millisecond.

    Raises: UnknownPriceVersion.
    """
    row = LedgerRow(
        sequence=sequence + 1,
        event_id=id_of(event),
        event=replace(event, occurred_at=to_ms(event.occurred_at) / 1000),
        amount_nano_usd=rate_event(event),
        recorded_at=to_ms(recorded_at) / 1000,
        prev_hash=prev_hash,
        hash="",
    )
    return replace(row, hash=row_hash(row))


def to_ms(at: float) -> int:
    return round(at * 1000)


def row_hash(row: LedgerRow) -> str:
    """sha256 of the row and `prev_hash` as JSON: sorted keys, no spaces, ASCII, money as a string."""
    event = row.event
    body = {
        "amount_nano_usd": str(row.amount_nano_usd),
        "api_key_id": event.api_key_id,
        "attempt_epoch": event.attempt_epoch,
        "deployment_id": event.deployment_id,
        "event_id": row.event_id,
        "meter": str(event.meter),
        "model": event.model,
        "occurred_ms": to_ms(event.occurred_at),
        "prev_hash": row.prev_hash,
        "price_version": event.price_version,
        "quantity": event.quantity,
        "recorded_ms": to_ms(row.recorded_at),
        "request_id": event.request_id,
        "sequence": row.sequence,
        "tenant_id": event.tenant_id,
    }
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_rows(rows: Iterable[LedgerRow]) -> tuple[ChainReport, str]:
    """Check rows in order from the first; the report and the hash of the last good row."""
    count, total, prev = 0, 0, GENESIS
    for row in rows:
        problem = _problem(row, count + 1, prev)
        if problem is not None:
            return ChainReport(count, total, count + 1, problem), prev
        count, total, prev = count + 1, total + row.amount_nano_usd, row.hash
    return ChainReport(count, total), prev


def _problem(row: LedgerRow, sequence: int, prev_hash: str) -> str | None:
    if row.sequence != sequence:
        return f"row {sequence} is missing"
    if row.prev_hash != prev_hash:
        return "the previous row's hash differs"
    if row.event_id != id_of(row.event):
        return "the event id is not derived from the event"
    if row.hash != row_hash(row):
        return "the row's hash differs"
    try:
        amount = rate_event(row.event)
    except UnknownPriceVersion as error:
        return str(error)
    return None if amount == row.amount_nano_usd else f"the amount should be {amount} nano-USD"
