"""A job's id from enqueue to worker through the real broker."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import kombu
import pytest

from storage.queue import COMPILE_QUEUE, enqueue_compile, make_celery

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def output(tmp_path):
    path = tmp_path / "jobs.txt"
    path.touch()
    return path


@pytest.fixture
def start_worker(valkey, output):
    """Starts worker processes; ends each that still runs."""
    workers = []

    def start() -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "CANDELA_REDIS_URL": valkey.url,
            "CANDELA_TEST_OUTPUT": str(output),
            "PYTHONPATH": str(ROOT),
        }
        script = Path(__file__).parent / "celery_worker.py"
        workers.append(
            subprocess.Popen(
                [sys.executable, str(script)],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return workers[-1]

    yield start
    for worker in workers:
        kill(worker)


def test_an_enqueued_id_reaches_a_worker_once(r, valkey, start_worker, output):
    app = make_celery(valkey.url)
    enqueue_compile(app, "job_1")
    enqueue_compile(app, "job_2")
    start_worker()
    assert wait_for(output, ["job_1", "job_2"])
    assert r.llen(COMPILE_QUEUE) == 0


@pytest.mark.pitfall("U7")
def test_no_result_is_kept(r, valkey, start_worker, output):
    enqueue_compile(make_celery(valkey.url), "job_1")
    start_worker()
    assert wait_for(output, ["job_1"])
    assert r.keys("celery-task-meta*") == []


@pytest.mark.pitfall("U5")
def test_a_message_is_acknowledged_when_it_is_taken_and_not_when_it_is_done(r, valkey, start_worker, output):
    enqueue_compile(make_celery(valkey.url), "job_slow")
    worker = start_worker()
    assert wait_for(output, ["job_slow"])
    kill(worker)
    enqueue_compile(make_celery(valkey.url), "job_next")
    start_worker()
    assert wait_for(output, ["job_slow", "job_next"])
    assert (r.llen(COMPILE_QUEUE), r.hlen("unacked")) == (0, 0)


def test_a_queue_survives_a_restart_of_its_worker(valkey, r, start_worker, output):
    first = start_worker()
    enqueue_compile(make_celery(valkey.url), "job_1")
    assert wait_for(output, ["job_1"])
    first.terminate()
    first.wait(20)
    enqueue_compile(make_celery(valkey.url), "job_2")
    start_worker()
    assert wait_for(output, ["job_1", "job_2"])


def test_a_broker_that_is_down_is_an_error_and_not_a_hang():
    begin = time.monotonic()
    with pytest.raises(kombu.exceptions.OperationalError):
        enqueue_compile(make_celery("redis://127.0.0.1:1/0"), "job_1")
    assert time.monotonic() - begin < 5.0


def kill(worker):
    """The worker and its pool at once, as a node that loses power."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()


def wait_for(output, lines, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if output.read_text().split() == lines:
            return True
        time.sleep(0.05)
    return False
