"""Many writers, one ledger; many requests, one budget."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from storage import ledger
from storage.billing import parse_usd
from storage.db import Database
from storage.errors import LedgerConflict, SpendCapReached
from storage.records import Meter, TokenCounts, UsageEvent
from tests.support.storage_rows import NOW, a_tenant


def event(tenant, request, quantity=10):
    return UsageEvent(tenant.id, request, Meter.PROMPT_TOKENS, quantity, "list-1", "chat", NOW)


def make_tenant(db, cap=None):
    with db.write() as conn:
        return a_tenant(conn, spend_cap_nano_usd=cap)


def test_writers_at_once_make_one_unbroken_chain(db, database_url):
    tenant = make_tenant(db)
    other = Database(database_url)

    def write(n: int) -> bool:
        with (db if n % 2 else other).write() as conn:
            return ledger.append(conn, event(tenant, f"req_{n}"))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(write, range(100)))
    with other.read() as conn:
        report = ledger.verify_chain(conn, tenant.id)
    other.close()
    assert (report.is_intact, report.rows, report.total_nano_usd) == (True, 100, 100 * 500)


def test_the_chain_can_be_checked_while_it_grows(db):
    tenant = make_tenant(db)

    def write(n: int) -> bool:
        with db.write() as conn:
            return ledger.append(conn, event(tenant, f"req_{n}"))

    def check(_: int) -> bool:
        with db.read() as conn:
            return ledger.verify_chain(conn, tenant.id).is_intact

    with ThreadPoolExecutor(4) as pool:
        written, checked = pool.map(write, range(60)), pool.map(check, range(60))
        assert all(written)
        assert all(checked)


def test_one_event_delivered_by_many_is_recorded_once(db):
    tenant = make_tenant(db)

    def write(_: int) -> bool:
        with db.write() as conn:
            return ledger.append(conn, event(tenant, "req_1"))

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(write, range(16))) == 1


def test_of_two_bodies_under_one_id_the_first_stands(db):
    tenant = make_tenant(db)

    def write(quantity: int) -> str:
        try:
            with db.write() as conn:
                return "recorded" if ledger.append(conn, event(tenant, "req_1", quantity)) else "replay"
        except LedgerConflict:
            return "refused"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(write, range(1, 9)))
    assert sorted(outcomes) == ["recorded"] + ["refused"] * 7


def test_a_request_settled_by_gateway_and_scheduler_at_once_is_billed_once(db):
    tenant = make_tenant(db)
    with db.write() as conn:
        reserve(conn, tenant, "req_1", 1000)

    def settle(completion_tokens: int) -> bool:
        with db.write() as conn:
            return ledger.settle(conn, "req_1", TokenCounts(10, completion_tokens), NOW)

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(settle, (20, 21, 20, 22))) == 1
    with db.read() as conn:
        assert len(ledger.events_of_request(conn, tenant.id, "req_1")) == 2
        assert ledger.verify_chain(conn, tenant.id).is_intact


@pytest.mark.pitfall("B6")
def test_requests_at_once_do_not_pass_the_cap_together(db):
    tenant = make_tenant(db, cap=parse_usd("0.45"))

    def admit(n: int) -> bool:
        try:
            with db.write() as conn:
                reserve(conn, tenant, f"req_{n}", parse_usd("0.15"))
        except SpendCapReached:
            return False
        return True

    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(admit, range(5))) == 3


def test_the_cap_holds_while_requests_are_reserved_and_settled(db):
    """40 requests that use all they reserve, under a cap for ten: ten are admitted, whatever the order."""
    cost = 10 * 50 + 20 * 200
    tenant = make_tenant(db, cap=10 * cost)

    def run(n: int) -> bool:
        try:
            with db.write() as conn:
                reserve(conn, tenant, f"req_{n}", cost)
        except SpendCapReached:
            return False
        with db.write() as conn:
            return ledger.settle(conn, f"req_{n}", TokenCounts(10, 20), NOW)

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(run, range(40))) == 10
    with db.read() as conn:
        assert ledger.spent_nano_usd(conn, tenant.id) == 10 * cost


def reserve(conn, tenant, request_id, max_cost):
    return ledger.reserve(
        conn,
        request_id=request_id,
        tenant_id=tenant.id,
        model="chat",
        price_version="list-1",
        max_cost_nano_usd=max_cost,
        now=NOW,
        lease_s=30,
    )
