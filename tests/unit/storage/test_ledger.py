"""The ledger: append, replay, refusal, sums, chain."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import sqlalchemy as sa
import structlog
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidInput
from storage import keys, ledger
from storage.errors import EventTimeRejected, LedgerConflict, UnknownPriceVersion
from storage.ledger.chain import GENESIS, check_rows, next_row, row_hash
from storage.records import Meter, Scope, UsageEvent
from storage.tables import ledger_heads
from tests.support.storage_rows import NOW, a_tenant

DAY_S = 86_400.0


def event(tenant_id="ten_1", request="req_1", meter=Meter.PROMPT_TOKENS, quantity=10, **more):
    values = {"price_version": "list-1", "model": "chat", "occurred_at": NOW} | more
    return UsageEvent(tenant_id, request, meter, quantity, **values)


def test_an_event_is_recorded_with_its_price(conn, tenant):
    assert ledger.append(conn, event(tenant.id), now=NOW + 1)
    (row,) = ledger.list_ledger(conn, tenant.id)
    assert (row.event, row.amount_nano_usd, row.recorded_at) == (event(tenant.id), 500, NOW + 1)
    assert (row.sequence, row.prev_hash) == (1, GENESIS)


@pytest.mark.pitfall("B13")
def test_an_events_id_is_derived_as_documented(conn, tenant):
    ledger.append(conn, event(tenant.id, attempt_epoch=2))
    (row,) = ledger.list_ledger(conn, tenant.id)
    text = f"{tenant.id}|req_1|prompt_tokens|2"
    assert row.event_id == hashlib.sha256(text.encode()).hexdigest()
    assert row.event_id == ledger.event_id(tenant.id, "req_1", Meter.PROMPT_TOKENS, 2)


@pytest.mark.pitfall("B13")
def test_the_same_event_again_is_a_replay(conn, tenant):
    ledger.append(conn, event(tenant.id))
    assert not ledger.append(conn, event(tenant.id))
    assert len(ledger.list_ledger(conn, tenant.id)) == 1


@pytest.mark.pitfall("B22")
def test_a_replay_three_days_later_seen_by_another_clock_is_still_a_replay(conn, tenant):
    ledger.append(conn, event(tenant.id), now=NOW)
    later = NOW + 3 * DAY_S
    assert not ledger.append(conn, event(tenant.id, occurred_at=later), now=later)
    assert ledger.spent_nano_usd(conn, tenant.id) == 500


@pytest.mark.parametrize(
    "change", [{"quantity": 11}, {"model": "other"}, {"deployment_id": "dep_2"}, {"api_key_id": "key_2"}]
)
def test_the_same_id_with_another_body_is_refused_and_logged(conn, tenant, change):
    ledger.append(conn, event(tenant.id))
    with structlog.testing.capture_logs() as logs, pytest.raises(LedgerConflict):
        ledger.append(conn, replace(event(tenant.id), **change))
    assert [entry["event"] for entry in logs] == ["ledger_event_refused"]
    assert [r.event for r in ledger.list_ledger(conn, tenant.id)] == [event(tenant.id)]


def test_another_attempt_meter_request_or_tenant_is_another_event(conn, tenant):
    other = a_tenant(conn, "other")
    different = [
        event(tenant.id),
        event(tenant.id, attempt_epoch=1),
        event(tenant.id, meter=Meter.COMPLETION_TOKENS),
        event(tenant.id, request="req_2"),
        event(other.id),
    ]
    assert all(ledger.append(conn, e) for e in different)


@pytest.mark.parametrize("quantity", [0, -1])
def test_nothing_is_not_an_event(conn, tenant, quantity):
    with pytest.raises(InvalidInput):
        ledger.append(conn, event(tenant.id, quantity=quantity))


@pytest.mark.pitfall("B21")
def test_an_event_from_the_future_is_refused_with_its_own_code(conn, tenant):
    with pytest.raises(EventTimeRejected) as caught:
        ledger.append(conn, event(tenant.id, occurred_at=NOW + 600), now=NOW)
    assert caught.value.code == "event_time_out_of_range"


def test_an_event_without_a_price_is_refused(conn, tenant):
    with pytest.raises(UnknownPriceVersion):
        ledger.append(conn, event(tenant.id, price_version="free"))


def test_the_ledger_is_not_written_while_reading(db):
    with db.write() as conn:
        tenant = a_tenant(conn)
    with db.read() as conn, pytest.raises(AssertionError):
        ledger.append(conn, event(tenant.id))


def test_tenants_are_numbered_and_chained_apart(conn, tenant):
    other = a_tenant(conn, "other")
    for n in range(3):
        ledger.append(conn, event(tenant.id, f"req_{n}"))
        ledger.append(conn, event(other.id, f"req_{n}"))
    for owner in (tenant, other):
        assert [r.sequence for r in ledger.list_ledger(conn, owner.id)] == [1, 2, 3]
        assert ledger.verify_chain(conn, owner.id).is_intact


def test_rows_can_be_read_from_where_one_stopped(conn, tenant):
    for n in range(4):
        ledger.append(conn, event(tenant.id, f"req_{n}"))
    assert [r.sequence for r in ledger.list_ledger(conn, tenant.id, 1, 2)] == [2, 3]


def test_the_rows_of_a_request_are_its_bill(conn, tenant):
    ledger.append(conn, event(tenant.id, "req_1"))
    ledger.append(conn, event(tenant.id, "req_2"))
    ledger.append(conn, event(tenant.id, "req_1", Meter.COMPLETION_TOKENS, 7))
    rows = ledger.events_of_request(conn, tenant.id, "req_1")
    assert [(r.event.meter, r.event.quantity) for r in rows] == [
        ("prompt_tokens", 10),
        ("completion_tokens", 7),
    ]


def test_a_keys_spending_is_counted(conn, tenant):
    key, secret = keys.create_key(conn, tenant.id, "k", [Scope.INFERENCE], NOW)
    ledger.append(conn, event(tenant.id, api_key_id=key.id))
    ledger.append(conn, event(tenant.id, api_key_id=key.id))
    ledger.append(conn, event(tenant.id, "req_2", api_key_id=key.id))
    assert keys.find_key(conn, secret).spent_nano_usd == 1000


def test_usage_is_summed_by_utc_day_model_and_meter(conn, tenant):
    midnight = 1_700_006_400.0  # 2023-11-15T00:00:00Z
    for n, (at, model, meter) in enumerate(
        [
            (midnight - 0.001, "a", Meter.PROMPT_TOKENS),
            (midnight, "a", Meter.PROMPT_TOKENS),
            (midnight + 1, "a", Meter.PROMPT_TOKENS),
            (midnight + 1, "b", Meter.PROMPT_TOKENS),
            (midnight + 1, "b", Meter.COMPLETION_TOKENS),
        ]
    ):
        ledger.append(conn, event(tenant.id, f"req_{n}", meter, occurred_at=at, model=model))
    lines = ledger.usage_by_day_and_model(conn, tenant.id, midnight - DAY_S, midnight + DAY_S)
    assert [(x.day, x.model, x.meter, x.quantity, x.amount_nano_usd) for x in lines] == [
        ("2023-11-14", "a", Meter.PROMPT_TOKENS, 10, 500),
        ("2023-11-15", "a", Meter.PROMPT_TOKENS, 20, 1000),
        ("2023-11-15", "b", Meter.COMPLETION_TOKENS, 10, 2000),
        ("2023-11-15", "b", Meter.PROMPT_TOKENS, 10, 500),
    ]


def test_a_usage_window_is_half_open(conn, tenant):
    ledger.append(conn, event(tenant.id, "req_1", occurred_at=NOW))
    ledger.append(conn, event(tenant.id, "req_2", occurred_at=NOW + 10))
    (line,) = ledger.usage_by_day_and_model(conn, tenant.id, NOW, NOW + 10)
    assert line.quantity == 10


def test_usage_lines_add_up_to_the_rows_and_to_the_total(conn, tenant):
    for n, meter in enumerate(list(Meter) * 5):
        ledger.append(conn, event(tenant.id, f"req_{n}", meter, n + 1, occurred_at=NOW + n * 40_000))
    lines = ledger.usage_by_day_and_model(conn, tenant.id, 0, NOW * 2)
    rows = ledger.list_ledger(conn, tenant.id)
    assert sum(x.quantity for x in lines) == sum(r.event.quantity for r in rows)
    assert (
        sum(x.amount_nano_usd for x in lines)
        == sum(r.amount_nano_usd for r in rows)
        == ledger.spent_nano_usd(conn, tenant.id)
    )


def test_an_empty_ledger_is_intact(conn, tenant):
    assert ledger.verify_chain(conn, tenant.id).is_intact
    assert ledger.spent_nano_usd(conn, tenant.id) == 0


def test_a_head_that_ran_ahead_of_its_rows_is_found(conn, tenant):
    ledger.append(conn, event(tenant.id))
    conn.execute(sa.update(ledger_heads).values(sequence=2))
    report = ledger.verify_chain(conn, tenant.id)
    assert (report.is_intact, report.broken_at) == (False, 2)


def test_a_total_that_is_not_the_rows_sum_is_found(conn, tenant):
    ledger.append(conn, event(tenant.id))
    conn.execute(sa.update(ledger_heads).values(total_nano_usd=0))
    assert "total" in ledger.verify_chain(conn, tenant.id).problem


def chain(quantities):
    """Rows of one tenant, without a database."""
    rows, prev = [], GENESIS
    for n, quantity in enumerate(quantities):
        rows.append(
            next_row(n, prev, event(request=f"req_{n}", quantity=quantity, occurred_at=NOW + n), NOW + n)
        )
        prev = rows[-1].hash
    return rows


@given(st.lists(st.integers(1, 10**9), max_size=20))
def test_a_chain_as_made_is_intact(quantities):
    report, _ = check_rows(chain(quantities))
    assert (report.is_intact, report.rows) == (True, len(quantities))


TAMPER = {
    "quantity": lambda row: replace(row, event=replace(row.event, quantity=row.event.quantity + 1)),
    "amount": lambda row: replace(row, amount_nano_usd=row.amount_nano_usd + 1),
    "model": lambda row: replace(row, event=replace(row.event, model="x")),
    "time": lambda row: replace(row, event=replace(row.event, occurred_at=row.event.occurred_at + 0.001)),
    "recorded": lambda row: replace(row, recorded_at=row.recorded_at + 60),
    "tenant": lambda row: replace(row, event=replace(row.event, tenant_id="ten_2")),
    "key": lambda row: replace(row, event=replace(row.event, api_key_id="key_1")),
    "deployment": lambda row: replace(row, event=replace(row.event, deployment_id="dep_1")),
    "price": lambda row: replace(row, event=replace(row.event, price_version="list-2")),
    "hash": lambda row: replace(row, hash=GENESIS),
    "prev": lambda row: replace(row, prev_hash="1" * 64),
    "id": lambda row: replace(row, event_id="1" * 64),
}


@given(st.integers(0, 7), st.sampled_from(sorted(TAMPER)))
def test_any_change_of_a_row_is_found_at_that_row(index, what):
    rows = chain(range(1, 9))
    rows[index] = TAMPER[what](rows[index])
    report, _ = check_rows(rows)
    assert report.broken_at == index + 1


@given(st.integers(0, 6))
def test_a_row_taken_out_is_found(index):
    rows = chain(range(1, 9))
    del rows[index]
    report, _ = check_rows(rows)
    assert report.broken_at == index + 1


@given(st.integers(0, 6))
def test_two_rows_swapped_are_found(index):
    rows = chain(range(1, 9))
    rows[index], rows[index + 1] = rows[index + 1], rows[index]
    report, _ = check_rows(rows)
    assert report.broken_at == index + 1


def test_a_row_priced_wrongly_from_the_start_is_found():
    row = next_row(0, GENESIS, event(), NOW)
    cheap = replace(row, amount_nano_usd=1)
    cheap = replace(cheap, hash=row_hash(cheap))
    assert "amount" in check_rows([cheap])[0].problem
