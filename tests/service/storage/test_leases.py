"""Leases, wakes and held counts on a real server."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from common.wire import ReplicaState
from storage import async_leases, leases
from storage.lease_keys import lease_key
from storage.leases import Change, ReplicaLease
from tests.support.storage_rows import NOW

READY = ReplicaLease(
    "rep_1", "dep_1", "rev_1", "ten_1", "/run/1.sock", "s3cret", ReplicaState.READY, max_sequences=8
)
SECOND = replace(READY, replica_id="rep_2", socket_path="/run/2.sock")
ELSEWHERE = replace(READY, replica_id="rep_3", deployment_id="dep_2")


def test_a_written_lease_is_live(r):
    leases.write_replica_lease(r, READY, 10.0, NOW)
    assert leases.live_replicas(r, "dep_1") == (READY,)
    assert leases.find_replica_lease(r, "rep_1") == READY


def test_a_renewed_lease_shows_the_newest_figures(r):
    leases.write_replica_lease(r, READY, 10.0, NOW)
    leases.write_replica_lease(r, replace(READY, running=3), 10.0, NOW + 1)
    assert [lease.running for lease in leases.live_replicas(r, "dep_1")] == [3]


def test_leases_are_found_by_deployment_or_all_at_once(r):
    for lease in (SECOND, READY, ELSEWHERE):
        leases.write_replica_lease(r, lease, 10.0, NOW)
    assert leases.live_replicas(r, "dep_1") == (READY, SECOND)
    assert leases.live_replicas(r, "dep_2") == (ELSEWHERE,)
    assert leases.live_replicas(r, None) == (READY, SECOND, ELSEWHERE)
    assert leases.live_replicas(r, "dep_3") == ()


def test_a_lease_that_is_not_renewed_expires(r):
    leases.write_replica_lease(r, READY, 0.05, NOW)
    leases.write_replica_lease(r, SECOND, 10.0, NOW)
    assert wait_until(lambda: leases.live_replicas(r, "dep_1") == (SECOND,))
    assert leases.find_replica_lease(r, "rep_1") is None


def test_a_lease_has_the_time_to_live_it_was_given(r):
    leases.write_replica_lease(r, READY, 12.5, NOW)
    assert 12_000 < r.pttl(lease_key("rep_1")) <= 12_500


def test_a_dropped_lease_is_gone_at_once(r):
    leases.write_replica_lease(r, READY, 10.0, NOW)
    leases.drop_replica_lease(r, "dep_1", "rep_1")
    assert leases.live_replicas(r, "dep_1") == leases.live_replicas(r, None) == ()


def test_the_index_forgets_replicas_that_died_long_ago(r):
    leases.write_replica_lease(r, READY, 0.01, NOW)
    leases.write_replica_lease(r, SECOND, 10.0, NOW + 120)
    assert r.zrange("candela:leases:dep_1", 0, -1) == ["rep_2"]


@pytest.mark.parametrize(("running", "waiting", "is_busy"), [(0, 0, False), (1, 0, True), (0, 1, True)])
def test_a_machine_is_busy_while_a_replica_has_work(r, running, waiting, is_busy):
    leases.write_replica_lease(r, ELSEWHERE, 10.0, NOW)
    leases.write_replica_lease(r, replace(READY, running=running, waiting=waiting), 10.0, NOW)
    assert leases.busy(r) == is_busy


def test_a_wake_stays_until_it_is_answered(r):
    leases.wake(r, "dep_1", NOW)
    leases.wake(r, "dep_1", NOW + 5)
    leases.wake(r, "dep_2", NOW + 6)
    assert leases.waiting_wakes(r) == {"dep_1": NOW, "dep_2": NOW + 6}
    leases.clear_wake(r, "dep_1")
    assert leases.waiting_wakes(r) == {"dep_2": NOW + 6}


def test_a_watch_hears_wakes_and_leases(r):
    with leases.watch(r) as changes:
        leases.wake(r, "dep_1", NOW)
        leases.write_replica_lease(r, READY, 10.0, NOW)
        leases.drop_replica_lease(r, "dep_1", "rep_1")
        heard = [changes.next(5.0) for _ in range(3)]
    assert heard == [Change("wake", "dep_1"), Change("lease", "dep_1"), Change("lease", "dep_1")]


def test_a_watch_that_hears_nothing_returns_in_time(r):
    with leases.watch(r) as changes:
        assert changes.next(0.05) is None


def test_waiting_ends_at_a_wake_from_another_thread(r):
    sender = threading.Thread(target=lambda: repeat(lambda: leases.wake(r, "dep_1", NOW)))
    sender.start()
    assert leases.wait_for_change(r, 10.0) == Change("wake", "dep_1")
    sender.join()


def test_held_requests_are_summed_over_gateways(r):
    leases.set_held_requests(r, "gw_1", "dep_1", 3, 10.0, NOW)
    leases.set_held_requests(r, "gw_2", "dep_1", 4, 10.0, NOW)
    leases.set_held_requests(r, "gw_1", "dep_2", 9, 10.0, NOW)
    assert leases.held_requests(r, "dep_1", NOW + 1) == 7
    leases.set_held_requests(r, "gw_2", "dep_1", 0, 10.0, NOW)
    assert leases.held_requests(r, "dep_1", NOW + 1) == 3


def test_a_gateway_that_died_holds_nothing(r):
    leases.set_held_requests(r, "gw_1", "dep_1", 3, 10.0, NOW)
    leases.set_held_requests(r, "gw_2", "dep_1", 1, 10.0, NOW + 8)
    assert leases.held_requests(r, "dep_1", NOW + 11) == 1


@pytest.fixture
async def ar(valkey, r):
    client = async_leases.connect(valkey.url)
    yield client
    await client.aclose()


async def test_the_gateway_sees_what_the_scheduler_wrote(r, ar):
    leases.write_replica_lease(r, READY, 10.0, NOW)
    assert await async_leases.live_replicas(ar, "dep_1") == (READY,)
    assert await async_leases.live_replicas(ar, "dep_2") == ()


async def test_the_scheduler_sees_what_the_gateway_wrote(r, ar):
    await async_leases.wake(ar, "dep_1", NOW)
    await async_leases.set_held_requests(ar, "gw_1", "dep_1", 2, 10.0, NOW)
    assert (leases.waiting_wakes(r), leases.held_requests(r, "dep_1", NOW)) == ({"dep_1": NOW}, 2)
    await async_leases.set_held_requests(ar, "gw_1", "dep_1", 0, 10.0, NOW)
    assert leases.held_requests(r, "dep_1", NOW) == 0


async def test_the_gateways_watch_hears_a_lease(r, ar):
    async with async_leases.watch(ar) as changes:
        assert await changes.next(0.02) is None
        leases.write_replica_lease(r, READY, 10.0, NOW)
        assert await changes.next(5.0) == Change("lease", "dep_1")


def wait_until(is_true, timeout_s=5.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if is_true():
            return True
        time.sleep(0.01)
    return False


def repeat(action, times=20):
    """The receiver may not have subscribed yet."""
    for _ in range(times):
        action()
        time.sleep(0.02)
