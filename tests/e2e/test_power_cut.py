"""The control plane killed under load, piece by piece and all at once: streams, jobs and bills survive."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from candela.client import ScalingPolicy, Usage
from tests.support.platform import Platform, running_platform, wait_until
from tests.support.tiny_checkpoints import write_tiny_checkpoint

PROMPT = "Once upon a time"
LONG = 200
LEASE_S = 3.0
ENV = {
    "CANDELA_COMPILE_BUDGET": "none",
    "CANDELA_JOB_LEASE_S": str(LEASE_S),
    "CANDELA_RESERVATION_LEASE_S": str(LEASE_S),
}


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform with the deployment `tiny`, one replica at most."""
    checkpoint = tmp_path_factory.mktemp("tiny")
    write_tiny_checkpoint(checkpoint, "gqa")
    with running_platform(env=ENV) as platform:
        sent = platform.candela(
            "model", "upload", str(checkpoint), "--name", "tiny", "--wait", "--budget", "none", "--json"
        )
        assert sent.returncode == 0, sent.stderr + platform.logs()
        platform.client().deployments.create("tiny", "tiny", ScalingPolicy(idle_timeout_s=300.0))
        yield platform


def test_a_scheduler_killed_in_mid_stream_breaks_no_stream(platform: Platform) -> None:
    with openai_client(platform) as client:
        received = 0
        for number, chunk in enumerate(stream(client)):
            if number == 3:
                os.kill(platform.pid_of("scheduler"), signal.SIGKILL)
            received = chunk.usage.completion_tokens if chunk.usage else received
        assert received >= 1
        assert completes(client)


def test_a_broker_killed_comes_back_and_requests_are_served(platform: Platform) -> None:
    old = platform.pid_of("valkey")
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: platform.pid_of("valkey") != old, 20.0, "the broker is started again")
    with openai_client(platform) as client:
        wait_until(lambda: is_served(client), 60.0, "a request is served")
        assert completes(client)


def test_everything_killed_at_once_loses_neither_job_nor_bill(platform: Platform, tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "plain")
    with openai_client(platform) as client:
        assert completes(client)
        before = tokens(platform)
        sent = platform.candela("model", "upload", str(tmp_path), "--name", "plain", "--json")
        job_id = json.loads(sent.stdout)["job_id"]
        wait_until(lambda: platform.client().jobs.get(job_id).state == "running", 30.0, "the job runs")
        with pytest.raises((openai.OpenAIError, httpx.HTTPError)):
            stream_until_everything_is_killed(client, platform)
    platform.start()
    job = platform.client().jobs.wait(job_id)
    assert (job.state, job.attempts) == ("succeeded", 2)
    assert platform.client().models.get("plain").revisions[0].state == "ready"
    time_out_reservations(platform)
    grown = tokens(platform) - before
    assert 0 <= grown <= LONG
    assert platform.client().usage.get(verify=True).chain_is_intact is True
    assert publications(platform) == 2


def openai_client(platform: Platform) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{platform.url}/v1", api_key=platform.api_key, max_retries=0)


def stream(client: openai.OpenAI) -> Iterator[openai.types.Completion]:
    return iter(
        client.completions.create(
            model="tiny",
            prompt=PROMPT,
            max_tokens=LONG,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )


def stream_until_everything_is_killed(client: openai.OpenAI, platform: Platform) -> None:
    for number, _ in enumerate(stream(client)):
        if number == 3:
            platform.kill_everything()


def completes(client: openai.OpenAI) -> bool:
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=3, temperature=0)
    return answer.usage is not None and answer.usage.completion_tokens >= 1


def is_served(client: openai.OpenAI) -> bool:
    try:
        return completes(client)
    except openai.OpenAIError:
        return False


def tokens(platform: Platform) -> int:
    """Completion tokens in the ledger, once they have stood still for a second."""
    usage: Usage = platform.client().usage.get()
    last, since = usage.quantities.get("completion_tokens", 0), time.monotonic()
    while time.monotonic() - since < 1.0:
        time.sleep(0.1)
        now = platform.client().usage.get().quantities.get("completion_tokens", 0)
        if now != last:
            last, since = now, time.monotonic()
    return last


def time_out_reservations(platform: Platform) -> None:
    """Wait until no request is open any more: expired ones are settled by the scheduler."""

    def none_open() -> bool:
        headers = {"authorization": f"Bearer {platform.api_key}"}
        rows = httpx.get(f"{platform.url}/api/v1/requests", headers=headers, timeout=10.0).json()["data"]
        return all(row["finished_at"] is not None for row in rows)

    wait_until(none_open, 60.0, "every request is settled")


def publications(platform: Platform) -> int:
    """Builds that are published, one pointer each."""
    return len(list((platform.home / "blobs").rglob("publication.json")))
