"""The scheduler as a process, with real child replicas, sockets, SQLite and Valkey."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import psutil
import pytest
from redis import Redis

from common.clock import wall_clock
from common.wire import (
    SECRET_HEADER,
    Delta,
    Ended,
    Frame,
    GenerateRequest,
    ReplicaState,
    decode_frame,
)
from storage import deployments, leases, ledger, replicas
from storage.billing import default_price_book
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.leases import ReplicaLease
from storage.records import Deployment, Meter, ScalingPolicy, Tenant
from tests.support.eventually import eventually
from tests.support.serving import deployed
from tests.support.storage_rows import a_tenant

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parents[2] / "support" / "scheduler_with_fakes.py"
QUICK = ScalingPolicy(min_replicas=0, max_replicas=1, idle_timeout_s=1.5)

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def tenant(database: Database) -> Tenant:
    with database.write() as conn:
        return a_tenant(conn)


@pytest.fixture
def chat(database: Database, blobs: DiskBlobs, tenant: Tenant) -> Deployment:
    return deployed(database, blobs, tenant, "chat", QUICK)


@pytest.fixture
def start(short_dir: Path, redis_url: str, redis: Redis) -> Iterator[Start]:
    """Starts schedulers on this test's stores; those still running at the end are stopped."""
    environment = {
        "PATH": os.environ["PATH"],
        "CANDELA_DATA_DIR": str(short_dir),
        "CANDELA_REDIS_URL": redis_url,
        "CANDELA_TICK_S": "0.2",
        "CANDELA_STOP_GRACE_S": "2",
    }
    with ExitStack() as stack:

        def start(*replica: str, **more: str) -> subprocess.Popen[bytes]:
            output = stack.enter_context((short_dir / "scheduler.log").open("ab"))
            process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), *replica],
                env={**environment, **more},
                stdout=output,
                stderr=output,
                cwd=ROOT,
            )
            stack.callback(stop, process)
            return process

        yield start
    print((short_dir / "scheduler.log").read_text())


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(20)


def lease_of(redis: Redis, deployment: Deployment) -> ReplicaLease | None:
    return next(iter(leases.live_replicas(redis, deployment.id)), None)


def woken(redis: Redis, deployment: Deployment) -> ReplicaLease:
    """The lease of a replica that a wake brought up."""
    leases.wake(redis, deployment.id, wall_clock())
    assert eventually(lambda: lease_of(redis, deployment) is not None)
    lease = lease_of(redis, deployment)
    assert lease is not None
    return lease


def generate(lease: ReplicaLease, request_id: str, tokens: int) -> list[Frame]:
    request = GenerateRequest(request_id, lease.tenant_id, (1, 2, 3), tokens)
    transport = httpx.HTTPTransport(uds=lease.socket_path)
    with httpx.Client(transport=transport, base_url="http://r", timeout=20) as client:
        answer = client.post("/generate", content=request.to_json(), headers={SECRET_HEADER: lease.secret})
    return [decode_frame(line) for line in answer.iter_lines()]


def pids_of(database: Database) -> list[int]:
    """Processes of replicas that are not recorded as gone."""
    with database.read() as conn:
        return [r.pid for r in replicas.list_replicas(conn) if r.pid is not None]


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def states(database: Database) -> list[ReplicaState]:
    with database.read() as conn:
        return [r.state for r in replicas.list_replicas(conn, states=tuple(ReplicaState))]


def test_from_zero_to_an_answer_and_back_to_zero(
    start: Start, database: Database, redis: Redis, chat: Deployment
) -> None:
    start()
    lease = woken(redis, chat)
    (pid,) = pids_of(database)
    frames = generate(lease, "req_1", 5)
    assert isinstance(frames[-1], Ended)
    assert [f.text for f in frames if isinstance(f, Delta)] == ["t0 ", "t1 ", "t2 ", "t3 ", "t4 "]
    assert eventually(lambda: not is_running(pid))
    assert eventually(lambda: states(database) == [ReplicaState.GONE])
    assert lease_of(redis, chat) is None


def test_the_real_replica_serves_drains_and_is_billed(
    start: Start, database: Database, blobs: DiskBlobs, tenant: Tenant, redis: Redis
) -> None:
    real = deployed(database, blobs, tenant, "real", QUICK, step_s=0.002)
    start(sys.executable, "-m", "tests.support.replica_with_fake_program")
    lease = woken(redis, real)
    frames = generate(lease, "req_1", 5)
    assert isinstance(frames[-1], Ended)
    assert frames[-1].completion_tokens == 5
    assert eventually(lambda: states(database) == [ReplicaState.GONE])
    with database.read() as conn:
        (row,) = ledger.list_ledger(conn, tenant.id)
    assert (row.event.meter, row.event.model) == (Meter.REPLICA_SECONDS, "real")
    assert {name for name, _ in lease.phases_s} >= {"queue", "start", "map", "warmup"}


@pytest.mark.pitfall("Z13")
def test_z13_a_replica_that_answers_probes_slowly_is_seen_ready_and_idle(
    start: Start, database: Database, blobs: DiskBlobs, tenant: Tenant, redis: Redis
) -> None:
    slow = deployed(database, blobs, tenant, "slow", QUICK, stats_delay_s=0.3)
    start(CANDELA_TICK_S="0.1")
    generate(woken(redis, slow), "req_1", 5)
    assert eventually(lambda: states(database) == [ReplicaState.GONE])
    with database.read() as conn:
        assert deployments.load_deployment(conn, slow.id).failure is None


def test_the_next_wake_brings_it_back(
    start: Start, database: Database, redis: Redis, chat: Deployment
) -> None:
    start()
    first = woken(redis, chat)
    assert eventually(lambda: states(database) == [ReplicaState.GONE])
    assert woken(redis, chat).replica_id != first.replica_id


def test_a_wake_does_not_wait_for_the_tick(start: Start, redis: Redis, chat: Deployment) -> None:
    start(CANDELA_TICK_S="30")
    assert eventually(lambda: redis.pubsub_numsub("candela:changes")[0][1] > 0)
    time.sleep(0.5)  # past the first tick
    began = time.monotonic()
    woken(redis, chat)
    assert time.monotonic() - began < 5.0


def test_a_killed_replica_is_replaced_when_wanted(
    start: Start, database: Database, redis: Redis, chat: Deployment
) -> None:
    start()
    lease = woken(redis, chat)
    os.kill(pids_of(database)[0], signal.SIGKILL)
    assert eventually(lambda: lease_of(redis, chat) is None)
    assert woken(redis, chat).replica_id != lease.replica_id


def test_a_stopped_scheduler_leaves_no_replica(
    start: Start, database: Database, redis: Redis, chat: Deployment
) -> None:
    scheduler = start()
    woken(redis, chat)
    (pid,) = pids_of(database)
    stop(scheduler)
    assert not is_running(pid)
    assert states(database) == [ReplicaState.GONE]


def test_after_kill_9_the_next_scheduler_ends_and_closes_what_was_left(
    start: Start, database: Database, blobs: DiskBlobs, tenant: Tenant, redis: Redis
) -> None:
    stubborn = deployed(database, blobs, tenant, "stubborn", ignores_sigterm=True)
    scheduler = start()
    woken(redis, stubborn)
    (pid,) = pids_of(database)
    scheduler.kill()
    scheduler.wait()
    assert is_running(pid)
    start(CANDELA_DRAIN_TIMEOUT_S="0.5")
    assert eventually(lambda: not is_running(pid))
    assert eventually(lambda: states(database) == [ReplicaState.GONE])


def test_a_request_whose_gateway_died_is_billed_once_from_the_replicas_counts(
    start: Start, database: Database, redis: Redis, chat: Deployment, tenant: Tenant
) -> None:
    start()
    lease = woken(redis, chat)
    with database.write() as conn:
        ledger.reserve(
            conn,
            request_id="req_lost",
            tenant_id=tenant.id,
            model="chat",
            price_version=default_price_book().version,
            max_cost_nano_usd=10**6,
            now=wall_clock(),
            lease_s=0.6,
            deployment_id=chat.id,
        )
    generate(lease, "req_lost", 4)

    def billed() -> dict[Meter, int]:
        with database.read() as conn:
            rows = ledger.events_of_request(conn, tenant.id, "req_lost")
        return {row.event.meter: row.event.quantity for row in rows}

    assert eventually(lambda: bool(billed()))
    assert billed() == {Meter.PROMPT_TOKENS: 3, Meter.COMPLETION_TOKENS: 4}
    with database.read() as conn:
        assert ledger.verify_chain(conn, tenant.id).is_intact


def test_ended_requests_are_acknowledged_to_the_replica(start: Start, redis: Redis, chat: Deployment) -> None:
    start()
    lease = woken(redis, chat)
    generate(lease, "req_1", 2)
    transport = httpx.HTTPTransport(uds=lease.socket_path)
    with httpx.Client(transport=transport, base_url="http://r") as client:
        headers = {SECRET_HEADER: lease.secret}
        assert eventually(lambda: client.get("/stats", headers=headers).json()["ended"] == [])
