"""Tokens of requests whose gateway died: counted by replicas, billed here when the reservation has expired.

A replica keeps the counts of ended requests until they are acknowledged: once nobody will ask again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import structlog

from common.wire import ReplicaState, ReplicaStats, RequestCounts
from scheduler.members import Fleet
from storage import ledger, requests
from storage.db import Connection
from storage.errors import RequestNotFound
from storage.records import RequestStatus, Reservation, ReservationState, TokenCounts

log = structlog.get_logger()

_GATEWAY_LOST = "gateway_lost"


@dataclass(slots=True)
class CountBook:
    """The highest counts any replica reported for a request, for as long as the request is not settled."""

    counts: dict[str, TokenCounts] = field(default_factory=dict)

    def note(self, stats: ReplicaStats) -> None:
        for reported in (*stats.open, *stats.ended):
            known = self.counts.get(reported.request_id, TokenCounts())
            self.counts[reported.request_id] = higher(known, _from_wire(reported))

    def of(self, request_id: str) -> TokenCounts:
        return self.counts.get(request_id, TokenCounts())

    def forget(self, request_ids: Iterable[str]) -> None:
        for request_id in request_ids:
            self.counts.pop(request_id, None)


def higher(a: TokenCounts, b: TokenCounts) -> TokenCounts:
    """Counts only grow, so of two reports about one request the higher figures are the later ones."""
    return TokenCounts(
        prompt_tokens=max(a.prompt_tokens, b.prompt_tokens),
        completion_tokens=max(a.completion_tokens, b.completion_tokens),
        cached_tokens=max(a.cached_tokens, b.cached_tokens),
    )


def settle_expired(conn: Connection, book: CountBook, fleet: Fleet, now: float) -> tuple[str, ...]:
    """Settle each expired reservation from the highest counts known; the ids settled or released.

    One whose request still runs, or whose replica was not asked since the lease expired, waits.
    """
    settled = []
    for reservation in ledger.expired_reservations(conn, now):
        if _is_unclear(reservation, fleet):
            continue
        counts = higher(reservation.counts, book.of(reservation.request_id))
        _close(conn, reservation, counts, now)
        settled.append(reservation.request_id)
    for request_id in dict.fromkeys(ledger.request_of(call_id) for call_id in settled):
        _finish(conn, request_id, now)
    return tuple(settled)


def acknowledgeable(conn: Connection, request_ids: Collection[str]) -> frozenset[str]:
    """Those of `request_ids` whose reservation is closed (or never was): their counts are needed no more."""
    return frozenset(i for i in request_ids if _is_closed(conn, i))


def _close(conn: Connection, reservation: Reservation, counts: TokenCounts, now: float) -> None:
    """Bill what was generated; a request that the platform lost before its first token costs nothing."""
    if counts.completion_tokens == 0:
        ledger.release(conn, reservation.request_id, now)
    else:
        ledger.settle(conn, reservation.request_id, counts, now)
    log.warning(
        "reservation_settled_for_gateway",
        request_id=reservation.request_id,
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
    )


def _finish(conn: Connection, request_id: str, now: float) -> None:
    """Close the request's row with what all its calls were billed, once none of them is open."""
    calls = ledger.calls_of(conn, request_id)
    if any(call.state is ReservationState.OPEN for call in calls):
        return
    requests.finish_request(
        conn,
        request_id,
        RequestStatus.FAILED,
        http_status=500,
        counts=_total(call.counts for call in calls if call.state is ReservationState.SETTLED),
        now=now,
        error_code=_GATEWAY_LOST,
        replica_id=calls[0].replica_id,
    )


def _total(counts: Iterable[TokenCounts]) -> TokenCounts:
    found = tuple(counts)
    return TokenCounts(
        prompt_tokens=sum(c.prompt_tokens for c in found),
        completion_tokens=sum(c.completion_tokens for c in found),
        cached_tokens=sum(c.cached_tokens for c in found),
    )


def _is_unclear(reservation: Reservation, fleet: Fleet) -> bool:
    for member in fleet.alive():
        if member.stats is None or member.endpoint is None:
            continue
        if any(c.request_id == reservation.request_id for c in member.stats.open):
            return member.silent_since is None
        is_its_own = member.replica_id == reservation.replica_id
        is_stale = member.stats_at < reservation.lease_expires_at
        if is_its_own and is_stale and member.state is ReplicaState.READY and member.silent_since is None:
            return True
    return False


def _is_closed(conn: Connection, request_id: str) -> bool:
    try:
        return ledger.get_reservation(conn, request_id).state is not ReservationState.OPEN
    except RequestNotFound:
        return True


def _from_wire(counts: RequestCounts) -> TokenCounts:
    return TokenCounts(counts.prompt_tokens, counts.completion_tokens, counts.cached_tokens)
