"""The management API: models, jobs and their event stream, deployments, keys, usage, requests, health."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, date, datetime
from typing import Any

import httpx
import pytest

from api.manage.usage import period
from common.errors import InvalidInput
from common.wire import ReplicaState
from storage import jobs, ledger, replicas, requests
from storage.records import (
    Deployment,
    Failure,
    Job,
    JobEventKind,
    Meter,
    RequestStatus,
    TokenCounts,
    UsageEvent,
)
from tests.support.gateway import Gateway, deploy
from tests.support.storage_rows import a_job


@pytest.fixture
def job(gateway: Gateway) -> Job:
    """A queued compile of model `tiny`."""
    with gateway.database.write() as conn:
        return a_job(conn, gateway.tenant)


def claim(gateway: Gateway, job: Job) -> int:
    with gateway.database.write() as conn:
        claimed = jobs.claim_job(conn, job.id, "wrk_1", time.time(), 30.0)
        assert claimed is not None
        return claimed.token


def progress(gateway: Gateway, job: Job, token: int, fraction: float) -> None:
    body = {"stage": "search", "fraction": fraction, "message": "bucket 1"}
    with gateway.database.write() as conn:
        jobs.append_event(conn, job.id, token, JobEventKind.PROGRESS, body, time.time())


def sse_events(text: str) -> list[tuple[str, str, dict[str, Any]]]:
    """(id, event, data) of each server-sent event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
        if "data" in fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


async def test_a_jobs_events_are_streamed_until_it_ends(
    gateway: Gateway, http: httpx.AsyncClient, job: Job
) -> None:
    token = claim(gateway, job)
    progress(gateway, job, token, 0.5)
    reading = asyncio.create_task(
        http.get(f"/api/v1/jobs/{job.id}/events", headers={"accept": "text/event-stream"})
    )
    await asyncio.sleep(0.05)
    with gateway.database.write() as conn:
        jobs.fail(conn, job.id, token, Failure("truncated_file", "it is too short"), time.time())
    response = await asyncio.wait_for(reading, 5)
    events = sse_events(response.text)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [e[1] for e in events] == ["state", "state", "progress", "state"]
    assert [e[0] for e in events] == ["1", "2", "3", "4"]
    assert events[-1][2]["body"]["code"] == "truncated_file"


async def test_a_stream_of_events_resumes_behind_the_last_one_seen(
    gateway: Gateway, http: httpx.AsyncClient, job: Job
) -> None:
    with gateway.database.write() as conn:
        jobs.cancel_job(conn, gateway.tenant.id, job.id, time.time())
    headers = {"accept": "text/event-stream", "last-event-id": "1"}
    response = await http.get(f"/api/v1/jobs/{job.id}/events", headers=headers)
    assert [e[0] for e in sse_events(response.text)] == ["2"]


async def test_a_log_is_a_list_for_those_who_do_not_follow(http: httpx.AsyncClient, job: Job) -> None:
    body = (await http.get(f"/api/v1/jobs/{job.id}/events")).json()
    assert [(e["seq"], e["kind"], e["body"]["state"]) for e in body["data"]] == [(1, "state", "queued")]


async def test_a_job_can_be_cancelled_twice_and_keeps_its_log(http: httpx.AsyncClient, job: Job) -> None:
    first = await http.post(f"/api/v1/jobs/{job.id}/cancel")
    second = await http.post(f"/api/v1/jobs/{job.id}/cancel")
    assert (first.json()["state"], second.status_code) == ("cancelled", 200)
    assert len((await http.get(f"/api/v1/jobs/{job.id}/events")).json()["data"]) == 2


async def test_jobs_are_filtered_by_model_and_state(http: httpx.AsyncClient, job: Job) -> None:
    found = (await http.get("/api/v1/jobs", params={"model": "tiny", "state": "queued"})).json()["data"]
    none = (await http.get("/api/v1/jobs", params={"state": "failed"})).json()["data"]
    wrong = await http.get("/api/v1/jobs", params={"state": "nonsense"})
    assert ([j["id"] for j in found], none) == ([job.id], [])
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "state")


async def test_a_deployment_is_made_changed_shown_and_deleted(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    deploy(gateway, "tiny")
    made = await http.post("/api/v1/deployments", json={"name": "second", "model": "tiny"})
    changed = await http.patch("/api/v1/deployments/second", json={"policy": {"max_replicas": 3}})
    listed = (await http.get("/api/v1/deployments")).json()["data"]
    gone = await http.delete("/api/v1/deployments/second")
    assert (made.status_code, made.json()["status"]) == (201, "zero")
    assert made.json()["kv_ceiling_tokens"] == gateway.services.settings.kv_ceiling_tokens
    assert changed.json()["policy"] == {
        "min_replicas": 0,
        "max_replicas": 3,
        "idle_timeout_s": 60.0,
        "target_in_flight": 16,
    }
    assert [d["name"] for d in listed] == ["second", "tiny"]
    assert gone.json()["state"] == "deleting"
    assert (await http.get("/api/v1/deployments/second")).status_code == 404


async def test_a_deployment_that_must_run_is_woken_at_once(gateway: Gateway, http: httpx.AsyncClient) -> None:
    deploy(gateway, "tiny")
    body = {"name": "busy", "model": "tiny", "policy": {"min_replicas": 1}}
    made = (await http.post("/api/v1/deployments", json=body)).json()
    assert gateway.leases.woken == [made["id"]]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "tiny", "model": "tiny"}, 409, "name_taken"),
        ({"name": "x", "model": "nothing"}, 404, "model_not_found"),
        ({"name": "a/b", "model": "tiny"}, 400, "invalid_value"),
        ({"name": "x", "model": "tiny", "policy": {"min_replicas": 5}}, 400, "invalid_request"),
        ({"name": "x", "model": "tiny", "policy": {"idle_timeout_s": 0}}, 400, "invalid_value"),
        ({"name": "x", "model": "tiny", "revision_id": "rev_0"}, 404, "revision_not_found"),
    ],
)
async def test_a_deployment_that_can_not_be_is_refused(
    gateway: Gateway, http: httpx.AsyncClient, body: dict[str, Any], status: int, code: str
) -> None:
    deploy(gateway, "tiny")
    response = await http.post("/api/v1/deployments", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_a_model_that_is_not_compiled_can_not_be_deployed(http: httpx.AsyncClient, job: Job) -> None:
    response = await http.post("/api/v1/deployments", json={"name": "x", "model": "tiny"})
    assert (response.status_code, response.json()["error"]["code"]) == (409, "revision_not_ready")


async def test_a_model_in_use_can_not_be_deleted_and_one_out_of_use_can(
    gateway: Gateway, http: httpx.AsyncClient, job: Job
) -> None:
    deploy(gateway, "served")
    in_use = await http.delete("/api/v1/models/served")
    free = await http.delete("/api/v1/models/tiny")
    assert (in_use.status_code, in_use.json()["error"]["code"]) == (409, "model_in_use")
    assert free.status_code == 204
    assert (await http.get(f"/api/v1/jobs/{job.id}")).json()["state"] == "cancelled"


def run_a_replica(gateway: Gateway, deployment: Deployment) -> None:
    now = time.time()
    with gateway.database.write() as conn:
        replica = replicas.insert_replica(conn, deployment, now - 20)
        replicas.set_replica_state(conn, replica.id, ReplicaState.READY, now - 18)


async def test_replicas_and_their_history_are_shown(gateway: Gateway, http: httpx.AsyncClient) -> None:
    run_a_replica(gateway, deploy(gateway, "tiny"))
    shown = (await http.get("/api/v1/deployments/tiny")).json()
    history = (await http.get("/api/v1/deployments/tiny/replica-history?window_s=60")).json()["data"]
    assert (shown["status"], shown["replicas"][0]["state"]) == ("ready", "ready")
    assert [change["state"] for change in history] == ["starting", "ready"]


async def test_a_keys_secret_is_told_once_and_never_listed(http: httpx.AsyncClient) -> None:
    made = (await http.post("/api/v1/keys", json={"name": "mine"})).json()
    listed = (await http.get("/api/v1/keys")).text
    assert made["secret"].startswith("ck_")
    assert made["scopes"] == ["inference", "read"]
    assert made["secret"] not in listed


@pytest.mark.parametrize(
    "body", [{"name": ""}, {"name": "k", "scopes": ["root"]}, {"name": "k", "spend_cap_nano_usd": 5}]
)
async def test_a_key_that_can_not_be_is_refused(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await http.post("/api/v1/keys", json=body)).status_code == 400


@pytest.mark.pitfall("B19")
async def test_b19_money_is_a_string_that_keeps_every_digit(http: httpx.AsyncClient) -> None:
    body = {"name": "k", "spend_cap_nano_usd": "9007199254740993"}
    made = (await http.post("/api/v1/keys", json=body)).json()
    assert made["spend_cap_nano_usd"] == "9007199254740993"
    assert made["spent_nano_usd"] == "0"


def bill(gateway: Gateway, model: str, meter: Meter, quantity: int, at: float) -> None:
    event = UsageEvent(gateway.tenant.id, f"req_{model}_{at}", meter, quantity, "list-1", model, at)
    with gateway.database.write() as conn:
        ledger.append(conn, event)


async def test_usage_is_told_by_day_model_and_meter_with_totals(
    gateway: Gateway, http: httpx.AsyncClient
) -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()
    bill(gateway, "a", Meter.PROMPT_TOKENS, 1_000_000, noon)
    bill(gateway, "a", Meter.COMPLETION_TOKENS, 1_000_000, noon)
    bill(gateway, "b", Meter.COMPLETION_TOKENS, 500_000, noon + 86_400)
    query = {"start": "2026-01-31", "end": "2026-02-02", "verify": "true"}
    body = (await http.get("/api/v1/usage", params=query)).json()
    assert [(x["day"], x["model"], x["quantity"]) for x in body["lines"]] == [
        ("2026-01-31", "a", 1_000_000),
        ("2026-01-31", "a", 1_000_000),
        ("2026-02-01", "b", 500_000),
    ]
    assert body["quantities"] == {"prompt_tokens": 1_000_000, "completion_tokens": 1_500_000}
    assert body["total_nano_usd"] == "350000000"
    assert body["chain_is_intact"] is True


def test_a_period_is_half_open_and_bounded() -> None:
    now = datetime(2026, 3, 10, 23, 59, tzinfo=UTC).timestamp()
    assert period(None, None, now) == (date(2026, 2, 9), date(2026, 3, 11))
    with pytest.raises(InvalidInput):
        period(date(2026, 3, 1), date(2026, 3, 1), now)
    with pytest.raises(InvalidInput):
        period(date(2020, 1, 1), date(2026, 1, 1), now)


async def test_requests_are_listed_newest_first_and_paged(gateway: Gateway, http: httpx.AsyncClient) -> None:
    with gateway.database.write() as conn:
        for number in range(3):
            requests.open_request(
                conn,
                f"req_{number}",
                gateway.tenant.id,
                model="m",
                endpoint="/v1/completions",
                is_stream=False,
                now=float(number),
            )
        requests.finish_request(
            conn, "req_2", RequestStatus.SUCCEEDED, http_status=200, counts=TokenCounts(3, 4, 1), now=9.0
        )
    page = (await http.get("/api/v1/requests", params={"limit": 2})).json()["data"]
    rest = (await http.get("/api/v1/requests", params={"before": page[-1]["id"]})).json()["data"]
    assert [r["id"] for r in page + rest] == ["req_2", "req_1", "req_0"]
    assert (page[0]["prompt_tokens"], page[0]["completion_tokens"], page[0]["cached_tokens"]) == (3, 4, 1)
    assert (await http.get("/api/v1/requests/req_9")).status_code == 404


async def test_ready_names_the_part_that_is_down(gateway: Gateway, http: httpx.AsyncClient) -> None:
    up = await http.get("/health/ready")
    gateway.leases.is_answering = False
    down = await http.get("/health/ready")
    assert (up.status_code, up.json()["parts"]) == (200, {"sql": "ok", "blobs": "ok", "redis": "ok"})
    assert (down.status_code, down.json()["parts"]["redis"]) == (503, "down")
    assert down.json()["error"]["code"] == "not_ready"


async def test_health_and_version_are_public(gateway: Gateway) -> None:
    async with gateway.client("") as client:
        statuses = [(await client.get(p)).status_code for p in ("/health/live", "/health/ready", "/version")]
    assert statuses == [200, 200, 200]
