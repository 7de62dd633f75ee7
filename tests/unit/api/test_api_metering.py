"""Money: every route that generates bills through one function, caps hold, counters equal the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from api.dispatch.generation import CLIENT_GONE
from api.dispatch.settlement import Account, CallBill, Ending, open_account, settle
from api.dispatch.tally import Counts, Tally, total
from common.wire import Delta, Ended, Finished, FinishReason, Started
from storage import keys, ledger
from storage.billing import default_price_book
from storage.records import Deployment, Meter, RequestStatus, Scope
from tests.support.gateway import Gateway, deploy
from tests.support.routes import routes_of
from tests.support.tiny_tokenizer import write_tiny_tokenizer
from tests.support.wire_replica import Pause, WireReplica, wire_replica

BODIES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "abc"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "abc"}]},
}
"""What each route that generates is asked. A new route fails the test below until it has a row here."""


@pytest.fixture
def chatty(gateway: Gateway) -> Deployment:
    return deploy(gateway, "chatty", write_tokenizer=write_tiny_tokenizer)


@pytest.fixture
async def replica(gateway: Gateway, chatty: Deployment, tmp_path: Path) -> AsyncIterator[WireReplica]:
    async with wire_replica(tmp_path) as made:
        gateway.leases.put(made.lease(chatty.id, gateway.tenant.id))
        yield made


@pytest.mark.pitfall("B5")
async def test_b5_every_route_that_generates_is_metered(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    generating = [r.path for r in routes_of(gateway.app) if r.method == "POST" and "inference" in r.scopes]
    assert sorted(generating) == sorted(BODIES)
    for path, body in BODIES.items():
        for is_stream in (False, True):
            answer = await http.post(
                path, json={"model": "chatty", "max_tokens": 2, "stream": is_stream} | body
            )
            request_id = answer.headers["x-candela-request-id"]
            with gateway.database.read() as conn:
                rows = ledger.events_of_request(conn, gateway.tenant.id, request_id)
            assert {row.event.meter: row.event.quantity for row in rows}[Meter.COMPLETION_TOKENS] == 2


@pytest.mark.pitfall("B6")
async def test_b6_concurrent_requests_never_spend_more_than_the_cap(
    gateway: Gateway, chatty: Deployment, replica: WireReplica
) -> None:
    each = 3 * 50 + 10 * 200  # nano-USD: 3 prompt tokens and 10 completion tokens of the list price
    with gateway.database.write() as conn:
        _, secret = keys.create_key(
            conn, gateway.tenant.id, "capped", [Scope.INFERENCE], 1.0, spend_cap_nano_usd=3 * each
        )
    pause = Pause()
    replica.script = lambda request: [
        Started(3),
        pause,
        Delta(0, "x", (1,), 10),
        Finished(0, FinishReason.LENGTH, 10),
        Ended(3, 10),
    ]
    body = {"model": "chatty", "prompt": [1, 2, 3], "max_tokens": 10}
    async with gateway.client(secret) as client:
        tasks = [asyncio.create_task(client.post("/v1/completions", json=body)) for _ in range(5)]
        async with asyncio.timeout(10):
            while len(replica.requests) < 3 or sum(t.done() for t in tasks) < 2:
                await asyncio.sleep(0.01)
        pause.go_on.set()
        answers = await asyncio.gather(*tasks)
    statuses = sorted(a.status_code for a in answers)
    refused = next(a for a in answers if a.status_code == 402)
    with gateway.database.read() as conn:
        spent = ledger.spent_nano_usd(conn, gateway.tenant.id)
    assert statuses == [200, 200, 200, 402, 402]
    assert refused.headers["x-should-retry"] == "false"
    assert spent == 3 * each


@pytest.mark.pitfall("B1")
@pytest.mark.parametrize("counted_at_the_end", [2, 0], ids=["counted", "not counted"])
async def test_b1_a_stream_costs_what_the_whole_answer_costs(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica, counted_at_the_end: int
) -> None:
    replica.script = lambda request: [
        Started(3),
        Delta(0, "a", (1,), 1),
        Delta(0, "b", (2,), 2),
        Finished(0, FinishReason.LENGTH, 2),
        Ended(3, counted_at_the_end),
    ]
    costs = [await cost_nano_usd(gateway, http, stream=is_stream) for is_stream in (False, True)]
    assert costs == [3 * 50 + 2 * 200] * 2  # 3 prompt tokens and 2 completion tokens of the list price


async def cost_nano_usd(gateway: Gateway, http: httpx.AsyncClient, **fields: Any) -> int:
    """What one request of three tokens costs."""
    body = {"model": "chatty", "prompt": "abc", "max_tokens": 2, **fields}
    request_id = (await http.post("/v1/completions", json=body)).headers["x-candela-request-id"]
    with gateway.database.read() as conn:
        return sum(r.amount_nano_usd for r in ledger.events_of_request(conn, gateway.tenant.id, request_id))


async def test_the_counters_equal_the_ledger(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    for number in range(3):
        await http.post(
            "/v1/completions", json={"model": "chatty", "prompt": "abcd", "max_tokens": number + 1}
        )
    registry = gateway.services.metrics.registry
    with gateway.database.read() as conn:
        rows = ledger.list_ledger(conn, gateway.tenant.id)
    quantities = {m: sum(r.event.quantity for r in rows if r.event.meter is m) for m in Meter}
    assert sample(registry, "candela_billed_tokens_total", kind="prompt", model_name="chatty") == 12
    assert quantities[Meter.PROMPT_TOKENS] == 12
    assert sample(registry, "candela_billed_tokens_total", kind="completion", model_name="chatty") == 6
    assert quantities[Meter.COMPLETION_TOKENS] == 6
    labels = {"handler": "/v1/completions", "method": "POST", "status": "200"}
    assert sample(registry, "http_requests_total", **labels) == 3
    assert sample(registry, "candela_time_to_first_token_seconds_count", model_name="chatty") == 3
    assert sample(registry, "candela_inter_token_latency_seconds_count", model_name="chatty") == 3


async def test_labels_stay_bounded_whatever_is_asked_for(gateway: Gateway, http: httpx.AsyncClient) -> None:
    await http.get("/nothing/here/4711")
    await http.post("/v1/completions", json={"model": "made-up-name", "prompt": "x"})
    text = " ".join(str(m.samples) for m in gateway.services.metrics.registry.collect())
    assert "4711" not in text
    assert "made-up-name" not in text


def sample(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


@pytest.fixture
def account(gateway: Gateway) -> Account:
    """An open request of one call, `req_1`, with room for a hundred tokens."""
    made = Account(
        request_id="req_1",
        client_request_id=None,
        tenant_id=gateway.tenant.id,
        api_key_id="key_1",
        deployment_id="dep_1",
        model="m",
        endpoint="/v1/completions",
        is_stream=True,
        arrived_at=1_700_000_000.0,
        prices=default_price_book(),
    )
    with gateway.database.write() as conn:
        open_account(conn, made, [("req_1", Counts(10, 0, 90))], lease_s=30.0)
    return made


@pytest.mark.pitfall("B26")
@pytest.mark.parametrize(
    ("ending", "counts", "expected"),
    [
        (Ending(RequestStatus.SUCCEEDED, 200), Counts(10, 0, 5), Counts(10, 0, 5)),
        (CLIENT_GONE, Counts(10, 0, 0), Counts(10, 0, 0)),
        (CLIENT_GONE, Counts(0, 0, 0), Counts()),
        (Ending(RequestStatus.FAILED, 500, "replica_lost", is_ours=True), Counts(10, 0, 3), Counts(10, 0, 3)),
        (Ending(RequestStatus.FAILED, 503, "overloaded", is_ours=True), Counts(10, 0, 0), Counts()),
    ],
)
async def test_what_each_ending_costs(
    gateway: Gateway, account: Account, ending: Ending, counts: Counts, expected: Counts
) -> None:
    with gateway.database.write() as conn:
        bills = [CallBill("req_1", counts)]
        billed = settle(conn, account, bills, ending, 1_700_000_001.0, replica_id=None, first_token_at=None)
    assert billed == expected


async def test_settling_again_bills_nothing(gateway: Gateway, account: Account) -> None:
    ending = Ending(RequestStatus.SUCCEEDED, 200)
    billed = []
    for counts in (Counts(10, 0, 5), Counts(10, 0, 90)):
        with gateway.database.write() as conn:
            bills = [CallBill("req_1", counts)]
            billed.append(
                settle(conn, account, bills, ending, 1_700_000_001.0, replica_id=None, first_token_at=None)
            )
    assert billed == [Counts(10, 0, 5), Counts()]


@pytest.mark.pitfall("B4")
def test_a_tally_believes_the_last_cumulative_count_of_each_sequence() -> None:
    tally = Tally()
    for frame in (
        Started(7, 2),
        Delta(0, "a", (1,), 1),
        Delta(1, "", (2, 3), 2),
        Delta(0, "b", (4,), 2),
        Finished(1, FinishReason.STOP, 2),
        Delta(0, "late", (1,), 1),
    ):
        tally.feed(frame)
    assert tally.counts == Counts(7, 2, 4)
    assert total([tally.counts, Counts(1, 0, 1)]) == Counts(8, 2, 5)
