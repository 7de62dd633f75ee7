"""The append-only ledger: events priced, numbered and chained within a tenant; reservations; usage sums."""

from storage.ledger.append import append
from storage.ledger.chain import ChainReport, event_id
from storage.ledger.read import (
    UsageLine,
    events_of_request,
    list_ledger,
    spent_nano_usd,
    usage_by_day_and_model,
    verify_chain,
)
from storage.ledger.reservations import (
    call_id,
    calls_of,
    expired_reservations,
    get_reservation,
    open_reservations,
    release,
    request_of,
    reserve,
    settle,
    update_reservation,
)

__all__ = [
    "ChainReport",
    "UsageLine",
    "append",
    "call_id",
    "calls_of",
    "event_id",
    "events_of_request",
    "expired_reservations",
    "get_reservation",
    "list_ledger",
    "open_reservations",
    "release",
    "request_of",
    "reserve",
    "settle",
    "spent_nano_usd",
    "update_reservation",
    "usage_by_day_and_model",
    "verify_chain",
]
