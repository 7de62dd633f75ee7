"""The worker process: `python -m worker.main`. Celery delivers job ids; one attempt runs at a time.

The pool is a thread, so that signals are heard while an attempt runs: on SIGTERM it stops, is handed back,
and Celery ends. Heavy work happens in the compile child.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from celery import Celery, signals
from redis import Redis
from redis.exceptions import RedisError

from common.clock import wall_clock
from common.ids import Kind, new_id
from common.logs import configure_logging
from storage import leases
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.queue import COMPILE_TASK, enqueue_compile, make_celery
from worker.attempt import CompileWorker, WorkerRules
from worker.compile_process import Compiler, ProcessCompiler, ProcessCompilerConfig
from worker.compiler_version import compiler_version
from worker.settings import WorkerSettings, compile_environment
from worker.workspace import drop_old, sweep

log = structlog.get_logger()

_KEPT_JOURNALS = 100


def main() -> None:
    """Serve the compile queue until SIGTERM."""
    settings = WorkerSettings()
    configure_logging("worker", settings.log_level)
    compiler = ProcessCompiler(
        ProcessCompilerConfig(
            memory_limit_bytes=settings.memory_limit_bytes,
            environment=compile_environment(dict(os.environ)),
            niceness=settings.compile_niceness,
            stop_grace_s=settings.compile_stop_grace_s,
        )
    )
    serve(settings, compiler)


def serve(settings: WorkerSettings, compiler: Compiler) -> None:
    """Run a Celery worker on this thread until it is told to end."""
    parts = build(settings, compiler)
    swept = sweep(parts.worker.rules.work_dir)
    drop_old(parts.worker.rules.journals_dir, _KEPT_JOURNALS)
    log.info("worker_started", worker_id=parts.worker.rules.worker_id, swept=len(swept))
    celery_worker = parts.celery.Worker(
        pool="threads",
        concurrency=1,
        hostname=f"{parts.worker.rules.worker_id}@localhost",
        without_gossip=True,
        without_mingle=True,
        quiet=True,
    )
    celery_worker.start()
    log.info("worker_stopped", worker_id=parts.worker.rules.worker_id)


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The wired parts."""

    celery: Celery
    worker: CompileWorker


def build(settings: WorkerSettings, compiler: Compiler) -> WorkerParts:
    """Wire a worker and register its task with a Celery app of its own."""
    celery, redis = make_celery(settings.redis_url), leases.connect(settings.redis_url)
    celery.conf.worker_disable_prefetch = (
        True  # a busy worker must not sit on a job that an idle one could take
    )
    home, stopping = settings.home, threading.Event()
    worker = CompileWorker(
        rules=WorkerRules(
            worker_id=new_id(Kind.WORKER),
            compiler_version=compiler_version(),
            lease_s=settings.job_lease_s,
            default_budget=settings.compile_budget,
            work_dir=home / "work",
            cache_dir=home / "cache" / "compile",
            logs_dir=home / "logs",
            journals_dir=home / "journals",
        ),
        database=Database(settings.database),
        blobs=DiskBlobs(settings.blobs),
        compiler=compiler,
        clock=wall_clock,
        is_busy=lambda: _is_busy(redis),
        enqueue=lambda job_id: enqueue_compile(celery, job_id),
        stopping=stopping,
    )

    @celery.task(name=COMPILE_TASK)
    def compile_job(job_id: str) -> None:
        worker.run(job_id)

    signals.worker_shutting_down.connect(_stopper(stopping), weak=False)
    return WorkerParts(celery, worker)


def _stopper(stopping: threading.Event) -> Callable[..., None]:
    def stop(**_: object) -> None:
        stopping.set()

    return stop


def _is_busy(redis: Redis) -> bool:
    """Whether replicas serve; when Redis can't say, compiling goes on."""
    try:
        return leases.busy(redis)
    except RedisError:
        return False


if __name__ == "__main__":
    main()
