"""Single processes killed in the middle of their work: nothing is lost, nothing is billed twice."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from candela.client import ScalingPolicy
from tests.support.platform import Platform, running_platform, wait_until
from tests.support.tiny_checkpoints import write_tiny_checkpoint

PROMPT = "Once upon a time"
LONG = 200
LEASE_S = 5.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A platform with the deployment `tiny`, one replica at most."""
    checkpoint = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny"), "gqa")
    with running_platform(env={"CANDELA_JOB_LEASE_S": str(LEASE_S)}) as platform:
        sent = platform.candela(
            "model", "upload", str(checkpoint), "--name", "tiny", "--wait", "--budget", "none", "--json"
        )
        assert sent.returncode == 0, sent.stderr + platform.logs()
        platform.client().deployments.create("tiny", "tiny", ScalingPolicy(idle_timeout_s=300.0))
        yield platform


@pytest.fixture
def openai_client(platform: Platform) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key=platform.api_key, max_retries=0) as client:
        yield client


def completion_tokens(platform: Platform) -> int:
    return platform.client().usage.get().quantities.get("completion_tokens", 0)


def settled(platform: Platform) -> int:
    """The ledger's completion tokens, once they have stood still for a second."""
    last, since = completion_tokens(platform), time.monotonic()
    while time.monotonic() - since < 1.0:
        time.sleep(0.1)
        now = completion_tokens(platform)
        if now != last:
            last, since = now, time.monotonic()
    return last


def stream_until_it_breaks(client: openai.OpenAI, kill: int) -> tuple[int, Exception | None]:
    """Start a long answer, SIGKILL `kill` after its first text; pieces seen, and how it ended."""
    pieces, ending = 0, None
    try:
        for chunk in client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=LONG, stream=True, temperature=0
        ):
            if pieces == 0:
                os.kill(kill, signal.SIGKILL)
            pieces += bool(chunk.choices and chunk.choices[0].text)
    except openai.OpenAIError as error:
        ending = error
    except Exception as error:  # the HTTP library's own error, when the connection breaks
        ending = error
    return pieces, ending


def test_a_replica_killed_in_mid_stream_ends_it_with_an_error_and_is_billed_once(
    platform: Platform, openai_client: openai.OpenAI
) -> None:
    openai_client.completions.create(model="tiny", prompt=PROMPT, max_tokens=1)
    before = settled(platform)
    pieces, ending = stream_until_it_breaks(openai_client, platform.replica_processes()[0].pid)
    assert ending is not None
    billed = settled(platform) - before
    assert max(pieces, 1) <= billed < LONG
    again = openai_client.completions.create(model="tiny", prompt=PROMPT, max_tokens=3, temperature=0)
    assert again.usage is not None
    assert settled(platform) - before == billed + again.usage.completion_tokens


def test_a_gateway_killed_in_mid_stream_has_the_request_settled_once(
    platform: Platform, openai_client: openai.OpenAI
) -> None:
    openai_client.completions.create(model="tiny", prompt=PROMPT, max_tokens=1)
    before = settled(platform)
    _, ending = stream_until_it_breaks(openai_client, platform.pid_of("gateway"))
    assert ending is not None
    wait_until(lambda: is_up(platform), 20.0, "the gateway is started again")
    wait_until(lambda: completion_tokens(platform) > before, 60.0, "the scheduler settles the request")
    assert 1 <= settled(platform) - before <= LONG
    assert platform.client().usage.get(verify=True).chain_is_intact is True


def test_a_worker_killed_in_mid_job_is_followed_by_a_second_attempt(
    platform: Platform, tmp_path: Path
) -> None:
    write_tiny_checkpoint(tmp_path, "plain")
    sent = platform.candela("model", "upload", str(tmp_path), "--name", "plain", "--json")
    assert sent.returncode == 0, sent.stderr
    job_id = json.loads(sent.stdout)["job_id"]
    client = platform.client()
    wait_until(lambda: client.jobs.get(job_id).stage is not None, 30.0, "the job does something")
    os.kill(platform.pid_of("worker"), signal.SIGKILL)
    killed_at = time.time()
    job = client.jobs.wait(job_id)
    assert job.attempts == 2
    assert job.started_at is not None
    second = [e.at for e in client.jobs.watch(job_id) if e.attempt == 2]
    assert min(second) - killed_at < LEASE_S + 10.0
    assert client.models.get("plain").revisions[0].state == "ready"


def is_up(platform: Platform) -> bool:
    return platform.candela("status").returncode == 0
