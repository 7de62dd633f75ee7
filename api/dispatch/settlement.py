"""Opening and closing a request's account: the rows written when it starts, and the one function that bills
it.

Every route that generates goes through `settle`; nothing else in the gateway writes usage. What is billed:
tokens that were generated, whatever happened afterwards; the prompt of a request that was started and whose
client left; nothing when the platform failed before the first token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.dispatch.tally import Counts, total
from storage import ledger, requests
from storage.billing import PriceBook, cost_of
from storage.db import Connection
from storage.records import RequestStatus, TokenCounts


@dataclass(frozen=True, slots=True)
class Account:
    """Who pays for a request, for what, and by which prices."""

    request_id: str
    client_request_id: str | None
    tenant_id: str
    api_key_id: str
    deployment_id: str
    model: str
    endpoint: str
    is_stream: bool
    arrived_at: float
    prices: PriceBook


@dataclass(frozen=True, slots=True)
class Ending:
    """How a request ended. `is_ours` marks a failure of the platform, which costs the caller nothing by
    itself.
    """

    status: RequestStatus
    http_status: int
    error_code: str | None = None
    is_ours: bool = False


@dataclass(frozen=True, slots=True)
class CallBill:
    """What one call to a replica used. A request has one call a prompt."""

    call_id: str
    counts: Counts

    def billable(self, ending: Ending) -> Counts:
        if ending.is_ours and self.counts.completion_tokens == 0:
            return Counts()
        return self.counts


def open_account(
    conn: Connection, account: Account, ceilings: Sequence[tuple[str, Counts]], lease_s: float
) -> None:
    """Note the request and set aside the highest cost of each call (`ceilings`: call id, counts it may
    reach).

    Raises: SpendCapReached: nothing is written then.
    """
    requests.open_request(
        conn,
        account.request_id,
        account.tenant_id,
        model=account.model,
        endpoint=account.endpoint,
        is_stream=account.is_stream,
        now=account.arrived_at,
        api_key_id=account.api_key_id,
        deployment_id=account.deployment_id,
        client_request_id=account.client_request_id,
    )
    for call_id, ceiling in ceilings:
        ledger.reserve(
            conn,
            request_id=call_id,
            tenant_id=account.tenant_id,
            model=account.model,
            price_version=account.prices.version,
            max_cost_nano_usd=cost_of(account.prices, token_counts(ceiling)),
            now=account.arrived_at,
            lease_s=lease_s,
            api_key_id=account.api_key_id,
            deployment_id=account.deployment_id,
        )


def renew(
    conn: Connection, calls: Sequence[tuple[str, str | None, Counts]], now: float, lease_s: float
) -> None:
    """Keep reservations alive and note what each call (id, replica, counts) has used so far."""
    for call_id, replica_id, counts in calls:
        ledger.update_reservation(
            conn, call_id, now=now, lease_s=lease_s, replica_id=replica_id, counts=token_counts(counts)
        )


def settle(
    conn: Connection,
    account: Account,
    bills: Sequence[CallBill],
    ending: Ending,
    now: float,
    *,
    replica_id: str | None,
    first_token_at: float | None,
) -> Counts:
    """Bill every call of a request and close it, in one transaction; what was billed by this call of
    `settle`.

    A repeat bills nothing: reservations close once.
    """
    billed = [Counts()]
    for bill in bills:
        counts = bill.billable(ending)
        if counts == Counts():
            ledger.release(conn, bill.call_id, now)
        elif ledger.settle(conn, bill.call_id, token_counts(counts), now):
            billed.append(counts)
    requests.finish_request(
        conn,
        account.request_id,
        ending.status,
        http_status=ending.http_status,
        counts=token_counts(total(bill.billable(ending) for bill in bills)),
        now=now,
        error_code=ending.error_code,
        replica_id=replica_id,
        first_token_at=first_token_at,
    )
    return total(billed)


def token_counts(counts: Counts) -> TokenCounts:
    return TokenCounts(counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens)
