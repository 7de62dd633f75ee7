"""Reading job rows and numbering their events; the rules are in `storage.jobs`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from storage.errors import JobNotFound
from storage.records import Failure, Job, JobEvent, JobEventKind, JobState
from storage.tables import job_events, jobs


def load_job(conn: Connection, job_id: str) -> Job:
    """For the control plane: any tenant's job.

    Raises: JobNotFound.
    """
    row = conn.execute(sa.select(jobs).where(jobs.c.id == job_id)).mappings().first()
    if row is None:
        raise JobNotFound(job_id)
    return job_from(row)


def append_event_row(
    conn: Connection, job_id: str, kind: JobEventKind, body: Mapping[str, Any], now: float
) -> JobEvent:
    """Number and store an event. The counter's UPDATE locks the job, so numbers have no gap and no double."""
    row = conn.execute(
        sa.update(jobs)
        .where(jobs.c.id == job_id)
        .values(event_seq=jobs.c.event_seq + 1)
        .returning(jobs.c.event_seq, jobs.c.attempts, jobs.c.tenant_id)
    ).one()
    conn.execute(
        sa.insert(job_events).values(
            tenant_id=row.tenant_id,
            job_id=job_id,
            seq=row.event_seq,
            attempt=row.attempts,
            kind=kind,
            body=dict(body),
            at=now,
        )
    )
    return JobEvent(job_id, row.event_seq, row.attempts, kind, dict(body), now)


def job_from(row: Any) -> Job:
    failure = None
    if row["failure_code"] is not None:
        failure = Failure(row["failure_code"], row["failure_message"])
    return Job(
        id=row["id"],
        tenant_id=row["tenant_id"],
        model_id=row["model_id"],
        model_name=row["model_name"],
        revision_id=row["revision_id"],
        upload_id=row["upload_id"],
        state=JobState(row["state"]),
        options=row["options"],
        attempts=row["attempts"],
        losses=row["losses"],
        token=row["token"],
        worker_id=row["worker_id"],
        lease_expires_at=row["lease_expires_at"],
        stage=row["stage"],
        fraction=row["fraction"],
        peak_rss_bytes=row["peak_rss_bytes"],
        failure=failure,
        created_at=row["created_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
    )
