"""Compile jobs that nobody works on: lost by a worker, or lost by the broker. Enqueued again here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from storage import jobs
from storage.db import Database
from storage.records import JobState

log = structlog.get_logger()

_UNSEEN_S = 10.0
_AGAIN_S = 30.0


@dataclass(slots=True)
class JobKeeper:
    """`enqueue` hands a job's id to the workers; `backlog` counts the ids that wait in the broker."""

    database: Database
    enqueue: Callable[[str], None]
    backlog: Callable[[], int]
    _enqueued_at: dict[str, float] = field(default_factory=dict)

    def run(self, now: float) -> None:
        """One round: expired leases first, then queued jobs that the broker does not hold any more."""
        for job_id in self._expired(now):
            self._enqueue(job_id, now)
        for job_id in self._unseen(now):
            self._enqueue(job_id, now)

    def _expired(self, now: float) -> list[str]:
        with self.database.read() as conn:
            expired = jobs.expired_jobs(conn, now)
        again = []
        for job in expired:
            with self.database.write() as conn:
                job = jobs.lose_job(conn, job.id, job.token, now)
            log.warning("job_lost", job_id=job.id, losses=job.losses, state=str(job.state))
            if job.state is JobState.QUEUED:
                again.append(job.id)
        return again

    def _unseen(self, now: float) -> list[str]:
        """Queued for a while although the broker is empty. A job that a busy worker took ahead is enqueued
        needlessly; the second claim then finds it done."""
        with self.database.read() as conn:
            queued = {job.id for job in jobs.queued_jobs(conn, created_before=now - _UNSEEN_S)}
        self._enqueued_at = {i: at for i, at in self._enqueued_at.items() if now - at < _AGAIN_S}
        waiting = sorted(queued - self._enqueued_at.keys())
        return waiting if waiting and self.backlog() == 0 else []

    def _enqueue(self, job_id: str, now: float) -> None:
        self.enqueue(job_id)
        self._enqueued_at[job_id] = now
        log.info("job_enqueued_again", job_id=job_id)
