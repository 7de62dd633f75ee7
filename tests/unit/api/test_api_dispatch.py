"""From HTTP to a replica and back: relaying, billing, failing, on a replica that speaks the real protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.wire import Delta, Ended, Failed, Finished, FinishReason, ReplicaState, Started
from storage import ledger, requests
from storage.records import Deployment, Meter, RequestRow, RequestStatus
from tests.support.asgi import Exchange
from tests.support.gateway import Gateway, deploy
from tests.support.wire_replica import Die, Pause, Step, WireReplica, wire_replica

PROMPT = [1, 2, 3]


@pytest.fixture
def tiny(gateway: Gateway) -> Deployment:
    return deploy(gateway)


@pytest.fixture
async def replica(gateway: Gateway, tiny: Deployment, tmp_path: Path) -> AsyncIterator[WireReplica]:
    """A ready replica of `tiny`."""
    async with wire_replica(tmp_path) as made:
        gateway.leases.put(made.lease(tiny.id, gateway.tenant.id))
        yield made


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": PROMPT, "max_tokens": 3, **fields}


def billed(gateway: Gateway) -> dict[Meter, int]:
    """Ledger totals by meter, over everything."""
    totals: dict[Meter, int] = {}
    with gateway.database.read() as conn:
        for row in ledger.list_ledger(conn, gateway.tenant.id):
            totals[row.event.meter] = totals.get(row.event.meter, 0) + row.event.quantity
    return totals


def last_request(gateway: Gateway) -> RequestRow:
    with gateway.database.read() as conn:
        return requests.list_requests(conn, gateway.tenant.id)[0]


def frames(text: str) -> list[Any]:
    """The `data:` payloads of a stream; `[DONE]` stays text."""
    payloads = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [p if p == "[DONE]" else json.loads(p) for p in payloads]


async def test_an_answer_has_text_usage_and_fingerprint(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    response = await http.post("/v1/completions", json=ask())
    body = response.json()
    assert response.status_code == 200
    assert body["choices"] == [{"index": 0, "text": "t0 t1 t2 ", "logprobs": None, "finish_reason": "length"}]
    assert body["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": 3,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert body["system_fingerprint"] == "fp_tiny0123456789ab"
    assert body["id"] == "cmpl-" + response.headers["x-candela-request-id"].removeprefix("req_")


async def test_a_request_is_billed_once_in_the_ledger(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    await http.post("/v1/completions", json=ask())
    row = last_request(gateway)
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 3}
    assert (row.status, row.http_status, row.replica_id) == (RequestStatus.SUCCEEDED, 200, "rep_1")
    assert (row.counts.prompt_tokens, row.counts.completion_tokens) == (3, 3)


@pytest.mark.pitfall("S15")
async def test_a_stream_joins_to_the_whole_answer(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    whole = (await http.post("/v1/completions", json=ask(n=2))).json()
    options = {"include_usage": True}
    stream = await http.post("/v1/completions", json=ask(n=2, stream=True, stream_options=options))
    chunks = frames(stream.text)
    texts = ["", ""]
    for chunk in chunks[:-2]:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert texts == [choice["text"] for choice in whole["choices"]]
    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"] == whole["usage"]
    assert all(chunk["usage"] is None for chunk in chunks[:-2])


@pytest.mark.pitfall("S15")
async def test_continuous_usage_is_cumulative(http: httpx.AsyncClient, replica: WireReplica) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    stream = await http.post("/v1/completions", json=ask(stream=True, stream_options=options))
    totals = [chunk["usage"]["completion_tokens"] for chunk in frames(stream.text)[:-1]]
    assert totals == sorted(totals)
    assert totals[-1] == 3


@pytest.mark.pitfall("S21")
async def test_the_replica_gets_ids_limits_and_every_stop_id(
    http: httpx.AsyncClient, replica: WireReplica
) -> None:
    await http.post("/v1/completions", json=ask(stop=["x"], stop_token_ids=[7], seed=5, temperature=0))
    (request,) = replica.requests
    assert (request.prompt_ids, request.max_tokens, request.stop) == ((1, 2, 3), 3, ("x",))
    assert request.stop_ids == (999, 7)
    assert (request.sampling.seed, request.sampling.temperature) == (5, 0.0)


async def test_many_prompts_are_answered_in_order_and_billed_together(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    body = (await http.post("/v1/completions", json=ask(prompt=[[1], [2, 3]], n=2))).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"]["prompt_tokens"] == 3
    assert body["usage"]["completion_tokens"] == 12
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 12}


@pytest.mark.pitfall("S15")
async def test_cached_tokens_are_metered_apart_and_shown(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    replica.script = lambda request: [Started(3, 2), Delta(0, "a", (1,), 1), *_end(1)]
    body = (await http.post("/v1/completions", json=ask())).json()
    assert body["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 1, Meter.CACHED_TOKENS: 2, Meter.COMPLETION_TOKENS: 1}


@pytest.mark.pitfall("S5", "B2")
async def test_a_client_that_leaves_mid_stream_is_billed_once_for_what_was_generated(
    gateway: Gateway, tiny: Deployment, replica: WireReplica
) -> None:
    pause = Pause()
    replica.script = lambda request: [
        Started(3),
        Delta(0, "a", (1,), 1),
        Delta(0, "b", (2,), 2),
        Delta(0, "c", (3,), 3),
        pause,
        *_end(400),
    ]
    exchange = Exchange(gateway, "/v1/completions", ask(max_tokens=50, stream=True))
    await exchange.until(b'"c"')
    await exchange.leave()
    row = last_request(gateway)
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 3}
    assert (row.status, row.http_status) == (RequestStatus.CANCELLED, 499)
    await asyncio.wait_for(_until(lambda: replica.aborted), 5)


@pytest.mark.pitfall("S5")
async def test_a_client_that_leaves_a_whole_answer_is_billed_once(
    gateway: Gateway, tiny: Deployment, replica: WireReplica
) -> None:
    pause = Pause()
    replica.script = lambda request: [Started(3), Delta(0, "a", (1,), 1), pause, *_end(400)]
    exchange = Exchange(gateway, "/v1/completions", ask(max_tokens=50))
    await asyncio.wait_for(pause.reached.wait(), 5)
    await exchange.leave()
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 1}
    assert last_request(gateway).http_status == 499


async def test_a_replica_that_dies_mid_stream_gives_an_error_frame_and_one_bill(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    replica.script = lambda request: [Started(3), Delta(0, "a", (1,), 1), Delta(0, "b", (2,), 2), Die()]
    stream = await http.post("/v1/completions", json=ask(stream=True))
    *_, error, done = frames(stream.text)
    assert (stream.status_code, done) == (200, "[DONE]")
    assert error["error"]["code"] == "replica_lost"
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 2}
    assert last_request(gateway).status is RequestStatus.FAILED


async def test_a_whole_answer_whose_replica_dies_is_a_500_that_must_not_be_retried(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    replica.script = lambda request: [Started(3), Delta(0, "a", (1,), 1), Die()]
    response = await http.post("/v1/completions", json=ask())
    assert (response.status_code, response.headers["x-should-retry"]) == (500, "false")


async def test_a_replica_that_fails_before_the_first_token_is_replaced(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, tmp_path: Path
) -> None:
    async with (
        wire_replica(tmp_path, lambda r: [Started(3), Die()], "rep_a") as bad,
        wire_replica(tmp_path, replica_id="rep_b") as good,
    ):
        gateway.leases.put(bad.lease(tiny.id, gateway.tenant.id))
        gateway.leases.put(good.lease(tiny.id, gateway.tenant.id, running=5))
        response = await http.post("/v1/completions", json=ask())
    assert response.json()["choices"][0]["text"] == "t0 t1 t2 "
    assert (len(bad.requests), len(good.requests)) == (1, 1)
    assert billed(gateway) == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 3}


async def test_a_draining_replica_is_passed_over(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, tmp_path: Path
) -> None:
    refuse: list[Step] = [Failed("draining", "no more", retryable=True)]
    async with (
        wire_replica(tmp_path, lambda r: refuse, "rep_a") as bad,
        wire_replica(tmp_path, replica_id="rep_b") as good,
    ):
        gateway.leases.put(bad.lease(tiny.id, gateway.tenant.id))
        gateway.leases.put(good.lease(tiny.id, gateway.tenant.id, running=5))
        response = await http.post("/v1/completions", json=ask())
    assert response.status_code == 200


@pytest.mark.pitfall("Z11")
async def test_z11_a_live_replica_goes_on_serving_while_more_are_starting(
    gateway: Gateway, http: httpx.AsyncClient, tiny: Deployment, replica: WireReplica, tmp_path: Path
) -> None:
    async with wire_replica(tmp_path, replica_id="rep_new") as new:
        starting = new.lease(tiny.id, gateway.tenant.id, state=ReplicaState.STARTING)
        gateway.leases.put(starting)
        during = [(await http.post("/v1/completions", json=ask())).status_code for _ in range(3)]
        heard_by_new = len(new.requests)
        gateway.leases.put(new.lease(tiny.id, gateway.tenant.id))
        after = await asyncio.gather(*(http.post("/v1/completions", json=ask()) for _ in range(6)))
    assert (during, heard_by_new) == ([200] * 3, 0)
    assert [answer.status_code for answer in after] == [200] * 6
    assert len(replica.requests) > 3


async def test_a_failure_of_the_model_is_sanitised_and_free(
    gateway: Gateway, http: httpx.AsyncClient, replica: WireReplica
) -> None:
    replica.script = lambda request: [Started(3), Failed("invalid_logits", "NaN at /secret/path")]
    response = await http.post("/v1/completions", json=ask())
    assert response.status_code == 500
    assert "secret" not in response.text
    assert billed(gateway) == {}


async def test_an_unknown_stop_id_is_refused_by_name(http: httpx.AsyncClient, replica: WireReplica) -> None:
    response = await http.post("/v1/completions", json=ask(stop_token_ids=[5000]))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "stop_token_ids"


async def test_a_prompt_that_fills_the_context_is_refused_by_number(
    http: httpx.AsyncClient, replica: WireReplica
) -> None:
    response = await http.post("/v1/completions", json=ask(prompt=list(range(64))))
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "prompt")
    assert "64" in error["message"]
    assert replica.requests == []


@pytest.mark.pitfall("S17")
async def test_a_length_above_the_room_is_clamped_and_announced(
    http: httpx.AsyncClient, replica: WireReplica
) -> None:
    response = await http.post("/v1/completions", json=ask(max_tokens=500))
    assert response.headers["x-clamped-params"] == "max_tokens=500->61"
    assert replica.requests[0].max_tokens == 61


@pytest.mark.pitfall("S17")
async def test_strict_callers_get_a_400_instead_of_a_clamp(
    http: httpx.AsyncClient, replica: WireReplica
) -> None:
    response = await http.post("/v1/completions", json=ask(max_tokens=500), headers={"x-candela-strict": "1"})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "context_length_exceeded"


def _end(tokens: int) -> Iterable[Step]:
    return [Finished(0, FinishReason.STOP, tokens), Ended(3, tokens)]


async def _until(is_so: Callable[[], object]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)
