"""Requests for a deployment without a free replica: held, woken for, released by slots, bounded, given up in
time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.wire import Delta, Ended, Finished, FinishReason, ReplicaState, Started
from storage import deployments, ledger, replicas
from storage.records import SERVED_BEFORE, Deployment, Failure
from tests.support.asgi import Exchange
from tests.support.gateway import Gateway, deploy, make_gateway
from tests.support.wire_replica import Pause, WireReplica, wire_replica

BODY = {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 2}


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """Quick to comment and to give up."""
    made = make_gateway(
        tmp_path,
        hold_comment_after_s=0.05,
        hopeless_after_s=0.0,
        request_deadline_s=3.0,
        max_held_requests=2,
    )
    async with made.app.router.lifespan_context(made.app):
        yield made


@pytest.fixture
def tiny(gateway: Gateway) -> Deployment:
    return deploy(gateway)


@pytest.fixture
async def replica(tmp_path: Path) -> AsyncIterator[WireReplica]:
    """Running, but in no lease yet."""
    async with wire_replica(tmp_path) as made:
        yield made


def post(http: httpx.AsyncClient, **fields: Any) -> asyncio.Task[httpx.Response]:
    return asyncio.create_task(http.post("/v1/completions", json={**BODY, **fields}))


def fail(gateway: Gateway, deployment: Deployment, code: str = "replica_start_failed") -> None:
    """Note, as the control plane does, that its replicas do not start."""
    with gateway.database.write() as conn:
        failure = Failure(code, "a starting replica failed: no such file")
        deployments.set_deployment_failure(conn, deployment.id, failure, time.time())


async def held(gateway: Gateway, count: int) -> None:
    """Wait until so many requests are held."""
    async with asyncio.timeout(5):
        while gateway.services.dispatcher.fleet.held != count:
            await asyncio.sleep(0.005)


async def woken(gateway: Gateway, times: int) -> None:
    """Wait until those who wait were looked after so many times."""
    async with asyncio.timeout(5):
        while len(gateway.leases.woken) < times:
            await asyncio.sleep(0.005)


@pytest.mark.pitfall("Z2")
async def test_a_request_at_zero_wakes_the_deployment_and_is_answered(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    gateway.leases.on_wake = lambda _: gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    response = await http.post("/v1/completions", json=BODY)
    assert response.status_code == 200
    assert gateway.leases.woken[0] == tiny.id
    assert int(response.headers["x-cold-start-ms"]) >= 0
    assert "map;dur=20.0" in response.headers["server-timing"]


@pytest.mark.pitfall("Z2")
async def test_held_requests_are_visible_to_the_scheduler_and_forgotten_afterwards(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    waiting = post(http)
    await held(gateway, 1)
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    await waiting
    async with asyncio.timeout(5):
        while gateway.leases.held.get(tiny.id) != 0:
            await asyncio.sleep(0.005)
    assert gateway.leases.most_held == 1


@pytest.mark.pitfall("Z3")
async def test_a_starting_replica_gets_nothing(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id, state=ReplicaState.STARTING))
    waiting = post(http)
    await held(gateway, 1)
    assert replica.requests == []
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    assert (await waiting).status_code == 200


@pytest.mark.pitfall("Z12")
async def test_a_held_stream_gets_headers_and_comments_before_its_tokens(
    gateway: Gateway, tiny: Deployment, replica: WireReplica
) -> None:
    exchange = Exchange(gateway, "/v1/completions", {**BODY, "stream": True})
    await exchange.until(b": waking tiny\n\n")
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    await exchange.done()
    assert exchange.status == 200
    assert exchange.body.endswith(b"data: [DONE]\n\n")


async def test_nothing_ready_before_the_deadline_is_a_503_to_be_retried(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment
) -> None:
    response = await http.post("/v1/completions", json=BODY)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "cold_start_timeout")
    assert response.headers["x-should-retry"] == "true"
    assert int(response.headers["retry-after"]) >= 1


async def test_a_stream_that_is_given_up_ends_with_an_error_frame(gateway: Gateway, tiny: Deployment) -> None:
    exchange = Exchange(gateway, "/v1/completions", {**BODY, "stream": True})
    await exchange.done()
    assert b'"code":"cold_start_timeout"' in exchange.body
    assert exchange.body.endswith(b"data: [DONE]\n\n")


@pytest.mark.pitfall("Z10")
async def test_more_held_requests_than_allowed_are_refused(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    waiting = [post(http), post(http)]
    await held(gateway, 2)
    refused = await http.post("/v1/completions", json=BODY)
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert [r.status_code for r in await asyncio.gather(*waiting)] == [200, 200]


@pytest.mark.pitfall("Z10")
async def test_z10_held_requests_are_released_by_slots(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    pause = Pause()
    replica.script = lambda request: [
        Started(3),
        pause,
        Delta(0, "a", (1,), 1),
        Finished(0, FinishReason.STOP, 1),
        Ended(3, 1),
    ]
    waiting = [post(http), post(http)]
    await held(gateway, 2)
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id, max_sequences=1))
    await held(gateway, 1)
    await asyncio.wait_for(pause.reached.wait(), 5)
    assert len(replica.requests) == 1
    pause.go_on.set()
    assert [r.status_code for r in await asyncio.gather(*waiting)] == [200, 200]


async def test_a_freed_slot_is_used_although_the_lease_still_says_full(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id, max_sequences=1))
    assert (await http.post("/v1/completions", json=BODY)).status_code == 200
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id, max_sequences=1, running=1))
    assert (await http.post("/v1/completions", json=BODY)).status_code == 200


@pytest.mark.pitfall("S5")
async def test_a_client_that_leaves_while_held_frees_its_place_and_pays_nothing(
    gateway: Gateway, tiny: Deployment
) -> None:
    exchange = Exchange(gateway, "/v1/completions", BODY)
    await held(gateway, 1)
    await exchange.leave()
    assert gateway.services.dispatcher.fleet.held == 0
    with gateway.database.read() as conn:
        assert ledger.list_ledger(conn, gateway.tenant.id) == ()
        assert ledger.open_reservations(conn, gateway.tenant.id) == ()


async def test_a_failed_deployment_sends_those_it_holds_away_with_its_reason(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment
) -> None:
    fail(gateway, tiny)
    response = await http.post("/v1/completions", json=BODY)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "deployment_failed")
    assert "no such file" in response.json()["error"]["message"]
    assert response.headers["x-should-retry"] == "true"
    assert gateway.services.dispatcher.fleet.held == 0
    with gateway.database.read() as conn:
        assert ledger.open_reservations(conn, gateway.tenant.id) == ()


async def test_a_failed_deployment_is_woken_all_the_same(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment
) -> None:
    fail(gateway, tiny)
    await http.post("/v1/completions", json=BODY)
    assert gateway.leases.woken[0] == tiny.id


async def test_after_a_failure_a_replica_that_is_starting_is_waited_for(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    fail(gateway, tiny)
    with gateway.database.write() as conn:
        replicas.insert_replica(conn, tiny, time.time(), replica_id="rep_next")
    waiting = post(http)
    await held(gateway, 1)
    await woken(gateway, 2)
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    assert (await waiting).status_code == 200


async def test_a_replica_that_failed_while_serving_will_be_replaced_and_is_waited_for(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica
) -> None:
    fail(gateway, tiny, SERVED_BEFORE)
    waiting = post(http)
    await woken(gateway, 2)
    gateway.leases.put(replica.lease(tiny.id, gateway.tenant.id))
    assert (await waiting).status_code == 200


async def test_a_deployment_deleted_meanwhile_answers_404(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment
) -> None:
    waiting = post(http)
    await held(gateway, 1)
    assert (await http.delete("/api/v1/deployments/tiny")).status_code == 200
    response = await waiting
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.pitfall("S10")
async def test_bad_input_gets_its_own_status_instead_of_being_held(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment
) -> None:
    response = await http.post("/v1/completions", json={**BODY, "top_k": 0.01})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "top_k")
    assert gateway.leases.woken == []
