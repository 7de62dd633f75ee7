"""A real registry and a gateway in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from redis import Redis

from storage import leases
from tests.support.gateway_process import GatewayProcess, gateway_process
from tests.support.servers import running_valkey, short_directory
from tests.support.wire_replica import WireReplica, wire_replica


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with running_valkey() as url:
        yield url


@pytest.fixture
def r(redis_url: str) -> Iterator[Redis]:
    client = leases.connect(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture
def process(redis_url: str, r: Redis) -> Iterator[GatewayProcess]:
    """Prepared, not started."""
    with short_directory() as home, gateway_process(home, redis_url) as made:
        yield made


@pytest.fixture
async def replica(process: GatewayProcess) -> AsyncIterator[WireReplica]:
    """Listening in this process, in no lease yet."""
    with short_directory() as folder:
        async with wire_replica(folder) as made:
            yield made
