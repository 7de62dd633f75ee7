"""Settling for a gateway that died, acknowledging ended requests, and jobs that nobody works on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.wire import ReplicaState
from scheduler.jobs import JobKeeper
from scheduler.launchers import Endpoint
from scheduler.members import Fleet, Member
from scheduler.placement import Footprint
from scheduler.settlement import CountBook, acknowledgeable, higher, settle_expired
from storage import jobs, ledger, requests
from storage.billing import default_price_book
from storage.db import Database
from storage.records import (
    JobState,
    LedgerRow,
    Meter,
    RequestStatus,
    ReservationState,
    Tenant,
    TokenCounts,
)
from tests.support.fake_launcher import counts, stats
from tests.support.storage_rows import NOW, a_job, a_tenant

LATER = NOW + 100.0


@pytest.fixture
def tenant(database: Database) -> Tenant:
    with database.write() as conn:
        return a_tenant(conn)


def reserve(database: Database, tenant: Tenant, request_id: str = "req_1", **fields: object) -> None:
    with database.write() as conn:
        requests.open_request(
            conn, request_id, tenant.id, model="chat", endpoint="chat", is_stream=True, now=NOW
        )
    reserve_call(database, tenant, request_id, **fields)


def reserve_call(
    database: Database, tenant: Tenant, call_id: str, lease_s: float = 30.0, **fields: object
) -> None:
    with database.write() as conn:
        ledger.reserve(
            conn,
            request_id=call_id,
            tenant_id=tenant.id,
            model="chat",
            price_version=default_price_book().version,
            max_cost_nano_usd=1000,
            now=NOW,
            lease_s=lease_s,
            **fields,  # type: ignore[arg-type]
        )


def settle(database: Database, book: CountBook, fleet: Fleet, now: float = LATER) -> tuple[str, ...]:
    with database.write() as conn:
        return settle_expired(conn, book, fleet, now)


def bill(database: Database, tenant: Tenant) -> dict[Meter, int]:
    with database.read() as conn:
        rows: tuple[LedgerRow, ...] = ledger.list_ledger(conn, tenant.id)
    return {row.event.meter: row.event.quantity for row in rows}


def reported(*ended: tuple[str, int, int], running: tuple[tuple[str, int, int], ...] = ()) -> Member:
    """A ready replica that was asked a moment after every lease expired."""
    report = stats("rep_1", open=tuple(counts(*c) for c in running), ended=tuple(counts(*c) for c in ended))
    return Member(
        replica_id="rep_1",
        deployment_id="dep_1",
        tenant_id="ten_1",
        revision_id="rev_1",
        endpoint=Endpoint("/run/r.sock", "s"),
        footprint=Footprint("a", 0, 0, 0.0),
        state=ReplicaState.READY,
        recorded=ReplicaState.READY,
        since=NOW,
        wanted_at=NOW,
        launched_at=NOW,
        stats=report,
        stats_at=LATER - 1.0,
    )


def world(member: Member) -> tuple[CountBook, Fleet]:
    book, fleet = CountBook(), Fleet()
    fleet.add(member)
    assert member.stats is not None
    book.note(member.stats)
    return book, fleet


def test_an_expired_reservation_is_settled_once_from_the_replicas_counts(
    database: Database, tenant: Tenant
) -> None:
    reserve(database, tenant, counts=TokenCounts(prompt_tokens=10, completion_tokens=2))
    book, fleet = world(reported(("req_1", 10, 7)))
    assert settle(database, book, fleet) == ("req_1",)
    assert settle(database, book, fleet) == ()
    assert bill(database, tenant) == {Meter.PROMPT_TOKENS: 10, Meter.COMPLETION_TOKENS: 7}


def test_the_gateways_own_counts_are_billed_when_the_replica_is_gone(
    database: Database, tenant: Tenant
) -> None:
    reserve(database, tenant, counts=TokenCounts(prompt_tokens=10, completion_tokens=2))
    settle(database, CountBook(), Fleet())
    assert bill(database, tenant) == {Meter.PROMPT_TOKENS: 10, Meter.COMPLETION_TOKENS: 2}


def test_a_request_lost_before_its_first_token_costs_nothing(database: Database, tenant: Tenant) -> None:
    reserve(database, tenant)
    settle(database, *world(reported(("req_1", 10, 0))))
    assert bill(database, tenant) == {}
    with database.read() as conn:
        assert ledger.get_reservation(conn, "req_1").state is ReservationState.RELEASED


def test_the_request_row_says_that_its_gateway_was_lost(database: Database, tenant: Tenant) -> None:
    reserve(database, tenant)
    settle(database, *world(reported(("req_1", 3, 4))))
    with database.read() as conn:
        row = requests.get_request(conn, tenant.id, "req_1")
    assert (row.status, row.error_code, row.counts.completion_tokens) == (
        RequestStatus.FAILED,
        "gateway_lost",
        4,
    )


def test_a_request_with_several_prompts_ends_with_its_last_call_and_with_the_sum(
    database: Database, tenant: Tenant
) -> None:
    reserve(database, tenant)
    reserve_call(database, tenant, ledger.call_id("req_1", 1), lease_s=60.0)
    book, fleet = world(reported(("req_1", 3, 4), ("req_1.1", 5, 6)))
    assert settle(database, book, fleet, now=NOW + 31.0) == ("req_1",)
    with database.read() as conn:
        assert requests.get_request(conn, tenant.id, "req_1").status is RequestStatus.OPEN
    assert settle(database, book, fleet) == ("req_1.1",)
    with database.read() as conn:
        row = requests.get_request(conn, tenant.id, "req_1")
    assert (row.status, row.counts) == (RequestStatus.FAILED, TokenCounts(8, 10))


def test_a_live_lease_is_left_alone(database: Database, tenant: Tenant) -> None:
    reserve(database, tenant)
    assert settle(database, *world(reported(("req_1", 3, 4))), now=NOW + 29.0) == ()


def test_a_request_that_still_runs_waits(database: Database, tenant: Tenant) -> None:
    reserve(database, tenant)
    assert settle(database, *world(reported(running=(("req_1", 3, 4),)))) == ()


def test_a_replica_not_asked_since_the_lease_expired_is_waited_for(
    database: Database, tenant: Tenant
) -> None:
    reserve(database, tenant)
    with database.write() as conn:
        ledger.update_reservation(conn, "req_1", now=NOW, lease_s=30.0, replica_id="rep_1")
    member = reported()
    member.stats_at = NOW + 20.0
    book, fleet = world(member)
    assert settle(database, book, fleet) == ()
    member.stats_at = NOW + 31.0
    assert settle(database, book, fleet) == ("req_1",)


def test_only_requests_nobody_will_ask_about_are_acknowledged(database: Database, tenant: Tenant) -> None:
    reserve(database, tenant, "req_open")
    reserve(database, tenant, "req_settled")
    with database.write() as conn:
        ledger.settle(conn, "req_settled", TokenCounts(1, 1), NOW)
    with database.read() as conn:
        found = acknowledgeable(conn, ["req_open", "req_settled", "req_unknown"])
    assert found == {"req_settled", "req_unknown"}


def test_of_two_reports_the_higher_counts_stand() -> None:
    assert higher(TokenCounts(5, 9, 0), TokenCounts(5, 3, 4)) == TokenCounts(5, 9, 4)


class Broker:
    """Takes ids; `waiting` is what LLEN would say."""

    def __init__(self) -> None:
        self.enqueued: list[str] = []
        self.waiting = 0


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def keeper(database: Database, broker: Broker) -> JobKeeper:
    return JobKeeper(database, broker.enqueued.append, lambda: broker.waiting)


@pytest.fixture
def job_id(database: Database, tenant: Tenant) -> str:
    with database.write() as conn:
        return a_job(conn, tenant).id


def claim(database: Database, job_id: str, at: float) -> None:
    with database.write() as conn:
        assert jobs.claim_job(conn, job_id, "wrk_1", at, 15.0) is not None


def state_of(database: Database, job_id: str) -> JobState:
    with database.read() as conn:
        return jobs.load_job(conn, job_id).state


def test_a_job_whose_worker_was_killed_is_enqueued_again(
    database: Database, broker: Broker, keeper: JobKeeper, job_id: str
) -> None:
    claim(database, job_id, NOW)
    keeper.run(NOW + 14.0)
    assert broker.enqueued == []
    keeper.run(NOW + 15.1)
    assert (broker.enqueued, state_of(database, job_id)) == ([job_id], JobState.QUEUED)


@pytest.mark.pitfall("U2", "U3")
def test_a_job_that_kills_its_workers_fails_at_the_third_loss(
    database: Database, broker: Broker, keeper: JobKeeper, job_id: str
) -> None:
    for at in (NOW, NOW + 20.0, NOW + 40.0):
        claim(database, job_id, at)
        keeper.run(at + 16.0)
    assert (len(broker.enqueued), state_of(database, job_id)) == (2, JobState.FAILED)


def test_a_job_that_the_broker_lost_is_enqueued_again(broker: Broker, keeper: JobKeeper, job_id: str) -> None:
    keeper.run(NOW + 5.0)
    assert broker.enqueued == []
    keeper.run(NOW + 11.0)
    assert broker.enqueued == [job_id]


def test_a_job_that_the_broker_still_holds_is_not_doubled(
    broker: Broker, keeper: JobKeeper, job_id: str
) -> None:
    broker.waiting = 1
    keeper.run(NOW + 60.0)
    assert broker.enqueued == []


def test_an_id_is_not_enqueued_again_at_every_tick(broker: Broker, keeper: JobKeeper, job_id: str) -> None:
    for second in range(11, 41):
        keeper.run(NOW + second)
    assert broker.enqueued == [job_id]
    keeper.run(NOW + 42.0)
    assert broker.enqueued == [job_id, job_id]


def test_the_count_book_forgets_what_is_settled() -> None:
    book = CountBook()
    book.note(replace(stats("rep_1"), ended=(counts("req_1", 1, 2),)))
    book.forget(["req_1"])
    assert book.of("req_1") == TokenCounts()
