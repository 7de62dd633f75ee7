"""Reservations: caps, leases, settling once."""

from __future__ import annotations

import pytest

from storage import keys, ledger
from storage.errors import RequestNotFound, SpendCapReached
from storage.records import Meter, ReservationState, Scope, TokenCounts
from tests.support.storage_rows import NOW, a_tenant

COUNTS = TokenCounts(prompt_tokens=12, completion_tokens=30, cached_tokens=4)


def reserve(conn, tenant, request_id="req_1", max_cost=1000, **more):
    values = {"model": "chat", "price_version": "list-1", "now": NOW, "lease_s": 30.0} | more
    return ledger.reserve(
        conn, request_id=request_id, tenant_id=tenant.id, max_cost_nano_usd=max_cost, **values
    )


def bill(conn, tenant, request_id="req_1"):
    return {r.event.meter: r.event.quantity for r in ledger.events_of_request(conn, tenant.id, request_id)}


def test_a_reservation_is_open_until_it_is_closed(conn, tenant):
    made = reserve(conn, tenant, deployment_id="dep_1")
    assert (made.state, made.lease_expires_at, made.counts) == (
        ReservationState.OPEN,
        NOW + 30,
        TokenCounts(),
    )
    assert ledger.open_reservations(conn, tenant.id) == (made,)
    assert ledger.get_reservation(conn, "req_1") == made


def test_settling_bills_each_token_once(conn, tenant):
    reserve(conn, tenant)
    assert ledger.settle(conn, "req_1", COUNTS, NOW + 5)
    assert bill(conn, tenant) == {Meter.PROMPT_TOKENS: 8, Meter.CACHED_TOKENS: 4, Meter.COMPLETION_TOKENS: 30}
    assert ledger.get_reservation(conn, "req_1").state is ReservationState.SETTLED
    assert ledger.open_reservations(conn, tenant.id) == ()


def test_the_second_settlement_bills_nothing(conn, tenant):
    reserve(conn, tenant)
    ledger.settle(conn, "req_1", COUNTS, NOW + 5)
    assert not ledger.settle(conn, "req_1", TokenCounts(12, 31), NOW + 6)
    assert bill(conn, tenant)[Meter.COMPLETION_TOKENS] == 30


@pytest.mark.pitfall("B24")
def test_a_settled_event_occurred_when_the_request_started(conn, tenant):
    reserve(conn, tenant)
    ledger.settle(conn, "req_1", COUNTS, NOW + 5)
    (first, *_) = ledger.list_ledger(conn, tenant.id)
    assert (first.event.occurred_at, first.recorded_at) == (NOW, NOW + 5)


@pytest.mark.pitfall("B24")
def test_a_settled_event_has_the_reservations_facts(conn, tenant):
    key, _ = keys.create_key(conn, tenant.id, "k", [Scope.INFERENCE], NOW)
    reserve(conn, tenant, deployment_id="dep_1", api_key_id=key.id)
    ledger.settle(conn, "req_1", COUNTS, NOW + 5)
    event = ledger.list_ledger(conn, tenant.id)[0].event
    assert (event.model, event.deployment_id, event.api_key_id, event.price_version) == (
        "chat",
        "dep_1",
        key.id,
        "list-1",
    )


def test_a_request_that_generated_nothing_is_settled_without_a_bill(conn, tenant):
    reserve(conn, tenant)
    assert ledger.settle(conn, "req_1", TokenCounts(), NOW)
    assert bill(conn, tenant) == {}


def test_a_released_reservation_can_not_be_billed(conn, tenant):
    reserve(conn, tenant)
    assert ledger.release(conn, "req_1", NOW)
    assert not ledger.release(conn, "req_1", NOW)
    assert not ledger.settle(conn, "req_1", COUNTS, NOW)
    assert bill(conn, tenant) == {}


@pytest.mark.parametrize("close", [ledger.release, lambda c, r, n: ledger.settle(c, r, COUNTS, n)])
def test_an_unknown_request_can_not_be_closed(conn, close):
    with pytest.raises(RequestNotFound):
        close(conn, "req_none", NOW)


def test_a_renewed_lease_does_not_expire(conn, tenant):
    reserve(conn, tenant)
    assert ledger.update_reservation(conn, "req_1", now=NOW + 20, lease_s=30)
    assert ledger.expired_reservations(conn, NOW + 49.9) == ()
    assert [r.request_id for r in ledger.expired_reservations(conn, NOW + 50)] == ["req_1"]


def test_reported_counts_and_replica_are_kept_for_a_settlement_without_the_gateway(conn, tenant):
    reserve(conn, tenant)
    ledger.update_reservation(conn, "req_1", now=NOW, lease_s=30, replica_id="rep_1", counts=COUNTS)
    (expired,) = ledger.expired_reservations(conn, NOW + 30)
    assert (expired.replica_id, expired.counts) == ("rep_1", COUNTS)


def test_reported_counts_never_fall(conn, tenant):
    reserve(conn, tenant)
    ledger.update_reservation(conn, "req_1", now=NOW, lease_s=30, counts=COUNTS)
    ledger.update_reservation(conn, "req_1", now=NOW, lease_s=30, counts=TokenCounts(12, 29, 0))
    assert ledger.get_reservation(conn, "req_1").counts == COUNTS


def test_a_closed_reservation_can_not_be_updated(conn, tenant):
    reserve(conn, tenant)
    ledger.settle(conn, "req_1", COUNTS, NOW)
    assert not ledger.update_reservation(conn, "req_1", now=NOW, lease_s=30, counts=TokenCounts(99, 99))
    assert ledger.get_reservation(conn, "req_1").counts == COUNTS


def test_a_closed_reservation_does_not_expire(conn, tenant):
    reserve(conn, tenant)
    ledger.settle(conn, "req_1", COUNTS, NOW)
    assert ledger.expired_reservations(conn, NOW + 1000) == ()


@pytest.mark.pitfall("B6")
def test_three_of_five_fit_under_the_cap(conn):
    tenant = a_tenant(conn, spend_cap_nano_usd=450)
    for n in range(3):
        reserve(conn, tenant, f"req_{n}", 150)
    with pytest.raises(SpendCapReached):
        reserve(conn, tenant, "req_3", 1)
    assert len(ledger.open_reservations(conn, tenant.id)) == 3


def test_what_was_not_used_can_be_reserved_again(conn):
    tenant = a_tenant(conn, spend_cap_nano_usd=10_000)
    reserve(conn, tenant, "req_1", 10_000)
    ledger.settle(conn, "req_1", TokenCounts(10, 0), NOW)
    reserve(conn, tenant, "req_2", 10_000 - 500)
    with pytest.raises(SpendCapReached):
        reserve(conn, tenant, "req_3", 1)


def test_a_released_reservation_frees_its_money(conn):
    tenant = a_tenant(conn, spend_cap_nano_usd=100)
    reserve(conn, tenant, "req_1", 100)
    ledger.release(conn, "req_1", NOW)
    assert reserve(conn, tenant, "req_2", 100).max_cost_nano_usd == 100


def test_a_key_has_a_cap_of_its_own(conn, tenant):
    poor, _ = keys.create_key(conn, tenant.id, "poor", [Scope.INFERENCE], NOW, spend_cap_nano_usd=100)
    rich, _ = keys.create_key(conn, tenant.id, "rich", [Scope.INFERENCE], NOW)
    reserve(conn, tenant, "req_1", 60, api_key_id=poor.id)
    with pytest.raises(SpendCapReached):
        reserve(conn, tenant, "req_2", 60, api_key_id=poor.id)
    reserve(conn, tenant, "req_2", 60, api_key_id=rich.id)


def test_what_a_key_has_spent_counts_towards_its_cap(conn, tenant):
    key, _ = keys.create_key(conn, tenant.id, "poor", [Scope.INFERENCE], NOW, spend_cap_nano_usd=1000)
    reserve(conn, tenant, "req_1", 600, api_key_id=key.id)
    ledger.settle(conn, "req_1", TokenCounts(12, 0), NOW)
    with pytest.raises(SpendCapReached):
        reserve(conn, tenant, "req_2", 401, api_key_id=key.id)
    reserve(conn, tenant, "req_2", 400, api_key_id=key.id)


def test_a_refusal_says_what_is_left(conn):
    tenant = a_tenant(conn, spend_cap_nano_usd=450_000_000)
    with pytest.raises(SpendCapReached, match=r"may cost 0\.5 USD.*leaves 0\.45 USD"):
        reserve(conn, tenant, "req_1", 500_000_000)
