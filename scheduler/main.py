"""The scheduler process: `python -m scheduler.main`. Wires settings, stores, launcher and loop together."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry, start_http_server

from common.clock import wall_clock
from common.logs import configure_logging
from scheduler.actor import Actor
from scheduler.events import Event, StopAsked
from scheduler.jobs import JobKeeper
from scheduler.launchers import ProcessLauncher, ProcessLauncherConfig
from scheduler.loop import ControlLoop
from scheduler.members import Fleet
from scheduler.metrics import SchedulerMetrics
from scheduler.poller import HttpPoller
from scheduler.reconcile import Reconciler
from scheduler.recovery import recover
from scheduler.settings import SchedulerSettings, replica_environment
from scheduler.wakes import WakeListener
from storage import leases
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.queue import COMPILE_QUEUE, enqueue_compile, make_celery

log = structlog.get_logger()


def main() -> None:
    """Run until SIGTERM or SIGINT, then let replicas drain and leave none behind."""
    settings = SchedulerSettings()
    configure_logging("scheduler", settings.log_level)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a poll says nothing
    scheduler = build(settings, replica_environment(dict(os.environ)))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: scheduler.loop.events.put(StopAsked()))
    host, port = settings.metrics_host_port()
    server, thread = start_http_server(port, host, registry=scheduler.registry)
    log.info("scheduler_started", metrics=f"{host}:{port}", tick_s=settings.tick_s)
    try:
        scheduler.run()
    finally:
        scheduler.close(settings.stop_grace_s)
        server.shutdown()
        thread.join()
        log.info("scheduler_stopped")


@dataclass(slots=True)
class Scheduler:
    """The wired parts. Build, run and close on one thread: a replica is bound to the one that started it."""

    loop: ControlLoop
    wakes: WakeListener
    registry: CollectorRegistry

    def run(self) -> None:
        """Take over from a predecessor, then run the loop until it is told to stop."""
        recover(self.loop.actor, self.loop.clock())
        self.wakes.start()
        self.loop.run()

    def close(self, grace_s: float) -> None:
        """Drain every replica within `grace_s`, record their ends, and stop the threads."""
        actor = self.loop.actor
        self.wakes.close()
        for member in actor.fleet.alive():
            self.loop.guarded("drain_failed", actor.drain, member, "scheduler_stopped", self.loop.clock())
        actor.launcher.close(grace_s)
        with contextlib.suppress(queue.Empty):
            while True:
                self.loop.guarded("event_failed", self.loop.handle, self.loop.events.get_nowait())
        actor.poller.close()
        actor.redis.close()
        actor.database.close()


def build(settings: SchedulerSettings, environment: dict[str, str], *program: str) -> Scheduler:
    """Wire a scheduler; `program` replaces the command that runs a replica."""
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    database, redis = Database(settings.database), leases.connect(settings.redis_url)
    celery = make_celery(settings.redis_url)
    registry, fleet = CollectorRegistry(), Fleet()
    config = ProcessLauncherConfig(settings.home / "run", settings.home / "logs", environment)
    if program:
        config = ProcessLauncherConfig(config.run_dir, config.logs_dir, environment, program)
    actor = Actor(
        database=database,
        redis=redis,
        blobs=DiskBlobs(settings.blobs),
        launcher=ProcessLauncher(config, events.put, wall_clock),
        poller=HttpPoller(events.put, wall_clock, settings.poll_timeout_s),
        fleet=fleet,
        cache_dir=settings.home / "cache" / "artifacts",
        lease_ttl_s=settings.lease_ttl_s,
    )
    rules = settings.rules()
    loop = ControlLoop(
        actor=actor,
        reconciler=Reconciler(actor, rules),
        jobs=JobKeeper(
            database,
            enqueue=lambda job_id: enqueue_compile(celery, job_id),
            backlog=lambda: int(redis.llen(COMPILE_QUEUE)),
        ),
        rules=rules,
        gauges=SchedulerMetrics(registry),
        clock=wall_clock,
        events=events,
    )
    return Scheduler(loop, WakeListener(redis, events.put, wall_clock), registry)


if __name__ == "__main__":
    main()
