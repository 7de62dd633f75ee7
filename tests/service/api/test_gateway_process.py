"""The real process over real sockets: the official client, a real registry, signals and kills."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import httpx
import openai
import pytest
from redis import Redis

from common.wire import Delta, Ended, Finished, FinishReason, Started
from storage import leases, ledger, requests
from storage.records import Meter, RequestStatus
from tests.support.gateway_process import ROOT, GatewayProcess
from tests.support.wire_replica import Pause, WireReplica, say

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
PAUSED = {"model": "chatty", "prompt": [1, 2, 3], "max_tokens": 50, "stream": True}


def register(r: Redis, process: GatewayProcess, replica: WireReplica) -> None:
    """Write the lease that a scheduler would."""
    lease = replica.lease(process.deployment.id, process.tenant.id)
    leases.write_replica_lease(r, lease, 60.0, time.time())


def http(process: GatewayProcess) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=process.url, headers={"authorization": f"Bearer {process.secret}"}, timeout=20
    )


def billed(process: GatewayProcess) -> dict[Meter, int]:
    with process.database.read() as conn:
        rows = ledger.list_ledger(conn, process.tenant.id)
    return {meter: sum(r.event.quantity for r in rows if r.event.meter is meter) for meter in Meter}


async def eventually(is_so: Callable[[], object], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.02)


async def test_the_official_client_chats_and_streams(
    process: GatewayProcess, r: Redis, replica: WireReplica
) -> None:
    replica.script = say("It", " is", " Paris", ".")
    register(r, process, replica)
    await asyncio.to_thread(process.start)

    def converse() -> tuple[str, str, int]:
        with openai.OpenAI(api_key=process.secret, base_url=f"{process.url}/v1", max_retries=0) as client:
            whole = client.chat.completions.create(model="chatty", messages=QUESTION)  # type: ignore[arg-type]
            stream = client.chat.completions.create(
                model="chatty",
                messages=QUESTION,  # type: ignore[arg-type]
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        usage = chunks[-1].usage
        assert usage is not None
        return whole.choices[0].message.content or "", text, usage.completion_tokens

    assert await asyncio.to_thread(converse) == ("It is Paris.", "It is Paris.", 4)
    assert billed(process)[Meter.COMPLETION_TOKENS] == 8


@pytest.mark.pitfall("Z2")
async def test_a_request_at_zero_is_seen_held_and_served_once_a_lease_is_written(
    process: GatewayProcess, r: Redis, replica: WireReplica
) -> None:
    await asyncio.to_thread(process.start)
    deployment = process.deployment.id
    async with http(process) as client:
        waiting = asyncio.create_task(client.post("/v1/completions", json={**PAUSED, "stream": False}))
        await eventually(lambda: deployment in leases.waiting_wakes(r))
        await eventually(lambda: leases.held_requests(r, deployment, time.time()) == 1)
        began = time.monotonic()
        register(r, process, replica)
        response = await waiting
        took_s = time.monotonic() - began
    assert response.status_code == 200
    assert took_s < 1.0
    await eventually(lambda: leases.held_requests(r, deployment, time.time()) == 0)


@pytest.mark.pitfall("B2")
async def test_b2_a_connection_closed_mid_stream_is_billed_once(
    process: GatewayProcess, r: Redis, replica: WireReplica
) -> None:
    pause = Pause()
    replica.script = lambda request: [
        Started(3),
        *(Delta(0, f"t{n} ", (n,), n + 1) for n in range(3)),
        pause,
        Finished(0, FinishReason.LENGTH, 400),
        Ended(3, 400),
    ]
    register(r, process, replica)
    await asyncio.to_thread(process.start)
    async with http(process) as client, client.stream("POST", "/v1/completions", json=PAUSED) as stream:
        async for line in stream.aiter_lines():
            if "t2" in line:
                break
    await eventually(lambda: replica.aborted)
    await eventually(lambda: billed(process)[Meter.COMPLETION_TOKENS])
    with process.database.read() as conn:
        row = requests.list_requests(conn, process.tenant.id)[0]
    assert billed(process)[Meter.COMPLETION_TOKENS] == 3
    assert (row.status, row.http_status) == (RequestStatus.CANCELLED, 499)


async def test_kill_9_mid_stream_leaves_what_was_reported_for_the_scheduler_to_settle(
    process: GatewayProcess, r: Redis, replica: WireReplica
) -> None:
    pause = Pause()
    replica.script = lambda request: [Started(3), Delta(0, "a", (1,), 7), pause]
    register(r, process, replica)
    await asyncio.to_thread(process.start)

    def noted() -> int:
        with process.database.read() as conn:
            found = ledger.open_reservations(conn, process.tenant.id)
        return found[0].counts.completion_tokens if found else 0

    async with http(process) as client:
        asking = asyncio.create_task(client.post("/v1/completions", json=PAUSED))
        await eventually(lambda: noted() == 7)
        await asyncio.to_thread(process.kill)
        await asyncio.gather(asking, return_exceptions=True)
    with process.database.read() as conn:
        (left,) = ledger.open_reservations(conn, process.tenant.id)
    assert (left.replica_id, left.counts.prompt_tokens) == ("rep_1", 3)
    await asyncio.to_thread(process.start)
    replica.script = say("fine")
    async with http(process) as client:
        again = await client.post("/v1/completions", json={**PAUSED, "stream": False})
    assert again.json()["choices"][0]["text"] == "fine"


async def test_sigterm_lets_a_running_stream_finish(
    process: GatewayProcess, r: Redis, replica: WireReplica
) -> None:
    pause = Pause()
    replica.script = lambda request: [
        Started(3),
        Delta(0, "a", (1,), 1),
        pause,
        Delta(0, "b", (1,), 2),
        Finished(0, FinishReason.STOP, 2),
        Ended(3, 2),
    ]
    register(r, process, replica)
    await asyncio.to_thread(process.start)
    async with http(process) as client:
        asking = asyncio.create_task(client.post("/v1/completions", json=PAUSED))
        await asyncio.wait_for(pause.reached.wait(), 10)
        process.send_signal(signal.SIGTERM)
        await asyncio.sleep(0.3)
        pause.go_on.set()
        text = (await asking).text
    assert text.endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(process.wait) == 0
    assert billed(process)[Meter.COMPLETION_TOKENS] == 2


async def test_metrics_have_an_address_of_their_own(process: GatewayProcess, r: Redis) -> None:
    await asyncio.to_thread(process.start)
    async with httpx.AsyncClient() as client:
        own = await client.get(f"http://127.0.0.1:{process.metrics_port}/metrics")
        main = await client.get(f"{process.url}/metrics")
    assert "candela_held_requests 0.0" in own.text
    assert 'http_requests_total{handler="/health/ready",method="GET",status="200"}' in own.text
    assert main.status_code == 401


def test_the_gateway_imports_neither_torch_nor_numpy() -> None:
    check = (
        "import sys, api.main; print([m for m in ('torch', 'numpy', 'triton', 'egglog') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, cwd=ROOT, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
