"""A client that stays connected and reads nothing must not keep its place at a replica."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from common.wire import Delta, Ended, Finished, FinishReason, Started
from storage import ledger, requests
from storage.records import RequestStatus
from tests.support.asgi import Exchange
from tests.support.gateway import Gateway, deploy, make_gateway
from tests.support.wire_replica import Pause, WireReplica, wire_replica


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    made = make_gateway(tmp_path, reader_silence_s=0.1)
    async with made.app.router.lifespan_context(made.app):
        yield made


@pytest.fixture
async def replica(gateway: Gateway, tmp_path: Path) -> AsyncIterator[WireReplica]:
    tiny = deploy(gateway)
    async with wire_replica(tmp_path) as made:
        gateway.leases.put(made.lease(tiny.id, gateway.tenant.id))
        yield made


async def test_a_client_that_reads_nothing_is_taken_to_be_gone(
    gateway: Gateway, replica: WireReplica
) -> None:
    pause = Pause()
    first, second = Delta(0, "a", (1,), 1), Delta(0, "b", (2,), 2)
    replica.script = lambda request: [
        Started(3),
        first,
        pause,
        second,
        Finished(0, FinishReason.LENGTH, 2),
        Ended(3, 2),
    ]
    body = {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 2, "stream": True}
    exchange = Exchange(gateway, "/v1/completions", body)
    await exchange.until(b'"a"')
    exchange.stop_reading()
    pause.go_on.set()
    await exchange.done()
    assert gateway.services.dispatcher.fleet.in_flight == 0
    with gateway.database.read() as conn:
        assert ledger.open_reservations(conn, gateway.tenant.id) == ()
        row = requests.list_requests(conn, gateway.tenant.id)[0]
    assert (row.status, row.http_status) == (RequestStatus.CANCELLED, 499)
