"""The gateway's view of the registry, on a real Valkey that comes and goes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from redis import Redis

from api.dispatch.leases import LeasesUnavailable, RedisLeases
from common.clock import wall_clock
from common.wire import ReplicaState
from storage import leases
from storage.embedded import start_valkey
from storage.lease_keys import ReplicaLease
from tests.support.servers import short_directory


def a_lease(replica_id: str = "rep_1") -> ReplicaLease:
    return ReplicaLease(replica_id, "dep_1", "rev_1", "ten_1", "/tmp/x.sock", "s", ReplicaState.READY)


async def test_a_written_lease_is_heard_of_and_read(redis_url: str, r: Redis) -> None:
    mine = RedisLeases(redis_url, "gw_1", wall_clock)
    heard = asyncio.Event()
    mine.listen(lambda deployment_id: heard.set() if deployment_id == "dep_1" else None)
    await mine.start()
    async with asyncio.timeout(5):
        while not heard.is_set():
            leases.write_replica_lease(r, a_lease(), 60.0, time.time())
            await asyncio.sleep(0.05)
    found = await mine.live("dep_1")
    await mine.close()
    assert found == (a_lease(),)


async def test_wakes_and_held_requests_reach_the_scheduler(redis_url: str, r: Redis) -> None:
    mine = RedisLeases(redis_url, "gw_1", wall_clock)
    await mine.wake("dep_1")
    await mine.report_held("dep_1", 3)
    seen = (set(leases.waiting_wakes(r)), leases.held_requests(r, "dep_1", time.time()))
    await mine.report_held("dep_1", 0)
    await mine.close()
    assert seen == ({"dep_1"}, 3)
    assert leases.held_requests(r, "dep_1", time.time()) == 0


async def test_a_registry_that_restarts_is_followed_again() -> None:
    with short_directory() as home:
        server = start_valkey(Path(home))
        port = int(server.url.rsplit(":", 1)[1].split("/")[0])
        password = server.url.split(":")[2].split("@")[0]
        mine = RedisLeases(server.url, "gw_1", wall_clock)
        heard = asyncio.Event()
        mine.listen(lambda _: heard.set())
        await mine.start()
        assert await mine.is_up()
        server.stop()
        assert not await mine.is_up()
        with pytest.raises(LeasesUnavailable):
            await mine.live("dep_1")
        server = start_valkey(Path(home), port, password)
        scheduler = leases.connect(server.url)
        async with asyncio.timeout(10):
            while not heard.is_set():
                leases.write_replica_lease(scheduler, a_lease(), 60.0, time.time())
                await asyncio.sleep(0.1)
        scheduler.close()
        await mine.close()
        server.stop()
    assert heard.is_set()
