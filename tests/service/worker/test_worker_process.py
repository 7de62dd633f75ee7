"""The worker as a process: Celery over Valkey, a compile child, and what kill -9 and SIGTERM leave behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from celery import Celery
from redis import Redis

from common.clock import wall_clock
from scheduler.jobs import JobKeeper
from storage import jobs, ledger
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.queue import COMPILE_QUEUE, enqueue_compile, make_celery
from storage.records import Job, JobState, Meter, Tenant
from storage.revisions import load_revision
from tests.support.eventually import eventually

PROGRAM = Path(__file__).parents[2] / "support" / "worker_with_fakes.py"
LEASE_S = 3.0

MakeJob = Callable[..., Job]
Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def app(redis_url: str, redis: Redis) -> Celery:
    return make_celery(redis_url)


@pytest.fixture
def start(short_dir: Path, redis_url: str, redis: Redis) -> Iterator[Start]:
    """Starts workers on this test's stores; those still running at the end are stopped."""
    environment = {
        "PATH": os.environ["PATH"],
        "CANDELA_DATA_DIR": str(short_dir),
        "CANDELA_REDIS_URL": redis_url,
        "CANDELA_JOB_LEASE_S": str(LEASE_S),
    }
    with ExitStack() as stack:

        def start() -> subprocess.Popen[bytes]:
            output = stack.enter_context((short_dir / "worker.log").open("ab"))
            process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM)], env=environment, stdout=output, stderr=output
            )
            stack.callback(stop, process)
            return process

        yield start
    print((short_dir / "worker.log").read_text())


def stop(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    return process.wait(20)


class Eye:
    """Looks at jobs."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def job(self, job: Job) -> Job:
        with self.database.read() as conn:
            return jobs.load_job(conn, job.id)

    def is_in(self, job: Job, state: JobState) -> bool:
        return self.job(job).state is state

    def is_compiling(self, job: Job) -> bool:
        return self.job(job).stage == "search"

    def billed(self, tenant: Tenant) -> int:
        with self.database.read() as conn:
            rows = ledger.list_ledger(conn, tenant.id)
        return sum(r.event.meter is Meter.COMPILE_SECONDS for r in rows)


@pytest.fixture
def eye(database: Database) -> Eye:
    return Eye(database)


def steered(**behaviour: object) -> dict[str, bytes]:
    """A checkpoint whose compile behaves as told."""
    return {"behaviour.json": json.dumps(behaviour).encode(), "model.safetensors": b"weights"}


LONG = {"steps": 600, "step_s": 0.1}


def test_a_delivered_job_is_compiled(start: Start, app: Celery, eye: Eye, make_job: MakeJob) -> None:
    start()
    job = make_job(steered())
    enqueue_compile(app, job.id)
    assert eventually(lambda: eye.is_in(job, JobState.SUCCEEDED))


@pytest.mark.pitfall("U1")
def test_one_delivered_twice_is_compiled_once(
    start: Start, app: Celery, eye: Eye, make_job: MakeJob, tenant: Tenant
) -> None:
    first, last = make_job(steered(), model="first"), make_job(steered(steps=2), model="last")
    for job_id in (first.id, first.id, last.id):
        enqueue_compile(app, job_id)
    start()
    assert eventually(lambda: eye.is_in(last, JobState.SUCCEEDED))
    assert (eye.job(first).attempts, eye.billed(tenant)) == (1, 2)


@pytest.mark.pitfall("U8")
def test_sigterm_hands_the_job_back_and_ends_the_worker(
    start: Start, app: Celery, eye: Eye, make_job: MakeJob, redis: Redis
) -> None:
    worker = start()
    job = make_job(steered(**LONG))
    enqueue_compile(app, job.id)
    assert eventually(lambda: eye.is_compiling(job))
    children = psutil.Process(worker.pid).children(recursive=True)
    assert stop(worker) == 0
    left = eye.job(job)
    assert (left.state, left.losses, redis.llen(COMPILE_QUEUE)) == (JobState.QUEUED, 0, 1)
    assert not any(child.is_running() for child in children)


@pytest.mark.pitfall("U2")
def test_after_kill_9_another_attempt_starts_in_time_and_ends_with_one_build(
    start: Start,
    app: Celery,
    eye: Eye,
    database: Database,
    blobs: DiskBlobs,
    make_job: MakeJob,
    tenant: Tenant,
) -> None:
    worker = start()
    job = make_job(steered(steps=20, step_s=0.1))
    enqueue_compile(app, job.id)
    assert eventually(lambda: eye.is_compiling(job))
    children = psutil.Process(worker.pid).children(recursive=True)
    worker.kill()
    worker.wait()
    killed_at = time.monotonic()
    start()
    keeper = JobKeeper(database, lambda job_id: enqueue_compile(app, job_id), lambda: 0)

    def second_attempt() -> bool:
        keeper.run(wall_clock())
        return eye.job(job).attempts == 2

    assert eventually(second_attempt)
    assert time.monotonic() - killed_at < LEASE_S + 10.0
    assert eventually(lambda: eye.is_in(job, JobState.SUCCEEDED))
    assert not any(child.is_running() for child in children)
    with database.read() as conn:
        build = load_revision(conn, job.revision_id).require_build()
    top = blobs.path(f"artifacts/{tenant.id}/{build.build_key}")
    assert len([p for p in top.iterdir() if p.is_dir()]) == 1
    assert (eye.job(job).losses, eye.billed(tenant)) == (1, 1)


@pytest.mark.pitfall("U6")
def test_a_cancelled_job_stops_and_the_next_one_runs(
    start: Start, app: Celery, eye: Eye, database: Database, make_job: MakeJob
) -> None:
    start()
    job, following = make_job(steered(**LONG)), make_job(steered(), model="next")
    enqueue_compile(app, job.id)
    enqueue_compile(app, following.id)
    assert eventually(lambda: eye.is_compiling(job))
    with database.write() as conn:
        jobs.cancel_job(conn, job.tenant_id, job.id, wall_clock())
    assert eventually(lambda: eye.is_in(following, JobState.SUCCEEDED))
    assert eye.is_in(job, JobState.CANCELLED)


def test_a_busy_worker_leaves_the_next_job_to_an_idle_one(
    start: Start, app: Celery, eye: Eye, make_job: MakeJob
) -> None:
    start()
    long = make_job(steered(**LONG))
    enqueue_compile(app, long.id)
    assert eventually(lambda: eye.is_compiling(long))
    short = make_job(steered(), model="short")
    enqueue_compile(app, short.id)
    time.sleep(1.0)  # time enough for the busy worker to take it ahead, if it did
    start()
    assert eventually(lambda: eye.is_in(short, JobState.SUCCEEDED))
    assert eye.is_in(long, JobState.RUNNING)
