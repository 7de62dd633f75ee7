"""Compile jobs: claimed with a fencing token, leased, retried, logged. The row is the truth, not the queue.

Every write of an attempt names its token. A token is stale once the job was claimed again, lost, handed back,
cancelled or finished; then the write raises `StaleToken` and the attempt must stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from common.ids import Kind, new_id
from storage.errors import IllegalTransition, JobNotFound, StaleToken
from storage.job_rows import append_event_row, job_from, load_job
from storage.records import Claim, Failure, Job, JobEvent, JobEventKind, JobState, Revision
from storage.revisions import set_revision_compiling, set_revision_failed
from storage.states import jobs_before
from storage.tables import job_events, jobs

__all__ = [
    "MAX_LOSSES",
    "append_event",
    "cancel_job",
    "claim_job",
    "create_job",
    "events_after",
    "expired_jobs",
    "fail",
    "get_job",
    "hand_back",
    "list_jobs",
    "load_job",
    "lose_job",
    "queued_jobs",
    "renew",
    "succeed",
]

MAX_LOSSES = 3
"""A job whose worker vanished this often is failed: it takes its worker with it."""


def create_job(
    conn: Connection, revision: Revision, model_name: str, upload_id: str | None, now: float
) -> Job:
    """Queue the compile of `revision`. Enqueue its id after the transaction has committed."""
    job_id = new_id(Kind.JOB)
    conn.execute(
        sa.insert(jobs).values(
            id=job_id,
            tenant_id=revision.tenant_id,
            model_id=revision.model_id,
            model_name=model_name,
            revision_id=revision.id,
            upload_id=upload_id,
            state=JobState.QUEUED,
            options=dict(revision.options),
            attempts=0,
            losses=0,
            token=0,
            event_seq=0,
            fraction=0.0,
            created_at=now,
        )
    )
    append_event_row(conn, job_id, JobEventKind.STATE, {"state": JobState.QUEUED}, now)
    return load_job(conn, job_id)


def get_job(conn: Connection, tenant_id: str, job_id: str) -> Job:
    """Raises: JobNotFound: also for another tenant's."""
    job = load_job(conn, job_id)
    if job.tenant_id != tenant_id:
        raise JobNotFound(job_id)
    return job


def list_jobs(
    conn: Connection, tenant_id: str, limit: int = 100, before: str | None = None
) -> tuple[Job, ...]:
    """Newest first. `before` is the id of the last job of the page before."""
    query = sa.select(jobs).where(jobs.c.tenant_id == tenant_id)
    if before is not None:
        query = query.where(jobs.c.id < before)
    rows = conn.execute(query.order_by(jobs.c.id.desc()).limit(limit)).mappings()
    return tuple(job_from(row) for row in rows)


def queued_jobs(conn: Connection, created_before: float | None = None, limit: int = 100) -> tuple[Job, ...]:
    """Every tenant's queued jobs, oldest first: what the scheduler enqueues again after a broker's loss."""
    query = sa.select(jobs).where(jobs.c.state == JobState.QUEUED)
    if created_before is not None:
        query = query.where(jobs.c.created_at < created_before)
    rows = conn.execute(query.order_by(jobs.c.id).limit(limit)).mappings()
    return tuple(job_from(row) for row in rows)


def expired_jobs(conn: Connection, now: float, limit: int = 100) -> tuple[Job, ...]:
    """Running jobs whose lease has passed: give each to `lose_job`, then enqueue what is queued again."""
    query = sa.select(jobs).where(jobs.c.state == JobState.RUNNING, jobs.c.lease_expires_at <= now)
    rows = conn.execute(query.order_by(jobs.c.id).limit(limit)).mappings()
    return tuple(job_from(row) for row in rows)


def claim_job(conn: Connection, job_id: str, worker_id: str, now: float, lease_s: float) -> Claim | None:
    """Start an attempt; None when the job runs under a live lease, has ended, or was lost too often.

    A running job whose lease has passed is taken over: that counts as a loss first.
    """
    job = load_job(conn, job_id)
    if job.state is JobState.RUNNING and job.lease_expires_at is not None and job.lease_expires_at <= now:
        lose_job(conn, job_id, job.token, now)
    row = (
        conn.execute(
            sa.update(jobs)
            .where(jobs.c.id == job_id, jobs.c.state == JobState.QUEUED)
            .values(
                state=JobState.RUNNING,
                attempts=jobs.c.attempts + 1,
                token=jobs.c.token + 1,
                worker_id=worker_id,
                lease_expires_at=now + lease_s,
                started_at=sa.func.coalesce(jobs.c.started_at, now),
                stage=None,
                fraction=0.0,
            )
            .returning(jobs)
        )
        .mappings()
        .first()
    )
    if row is None:
        return None
    claimed = job_from(row)
    set_revision_compiling(conn, claimed.revision_id)
    _say(conn, job_id, JobState.RUNNING, now, attempt=claimed.attempts, worker_id=worker_id)
    return Claim(claimed, claimed.token, claimed.attempts, now + lease_s)


def renew(
    conn: Connection, job_id: str, token: int, now: float, lease_s: float, rss_bytes: int | None = None
) -> bool:
    """Extend the lease; False when the token is stale and the attempt must stop.

    Keeps the highest `rss_bytes`.
    """
    values: dict[str, Any] = {"lease_expires_at": now + lease_s}
    if rss_bytes is not None:
        highest = sa.func.coalesce(jobs.c.peak_rss_bytes, 0)
        values["peak_rss_bytes"] = sa.case((highest < rss_bytes, rss_bytes), else_=highest)
    return conn.execute(sa.update(jobs).where(_owned(job_id, token)).values(**values)).rowcount == 1


def append_event(
    conn: Connection, job_id: str, token: int, kind: JobEventKind, body: Mapping[str, Any], now: float
) -> JobEvent:
    """Add a line to the job's log. A `progress` body has `stage`, `fraction` and `message`.

    Raises: StaleToken.
    """
    values: dict[str, Any] = {"event_seq": jobs.c.event_seq}
    if kind is JobEventKind.PROGRESS:
        values = {"stage": str(body["stage"]), "fraction": float(body["fraction"])}
    if conn.execute(sa.update(jobs).where(_owned(job_id, token)).values(**values)).rowcount == 0:
        raise StaleToken(job_id, token)
    return append_event_row(conn, job_id, kind, body, now)


def events_after(
    conn: Connection, tenant_id: str, job_id: str, seq: int = 0, limit: int = 1000
) -> tuple[JobEvent, ...]:
    """The log after event `seq`, oldest first; it stays readable when the job has ended."""
    rows = conn.execute(
        sa.select(job_events)
        .where(job_events.c.tenant_id == tenant_id, job_events.c.job_id == job_id, job_events.c.seq > seq)
        .order_by(job_events.c.seq)
        .limit(limit)
    ).mappings()
    return tuple(
        JobEvent(r["job_id"], r["seq"], r["attempt"], JobEventKind(r["kind"]), r["body"], r["at"])
        for r in rows
    )


def succeed(conn: Connection, job_id: str, token: int, now: float) -> Job:
    """End the job well. Call `set_revision_ready` and the compile's `ledger.append` in the same transaction.

    Raises: StaleToken.
    """
    return _end(conn, job_id, token, JobState.SUCCEEDED, None, now)


def fail(conn: Connection, job_id: str, token: int, failure: Failure, now: float) -> Job:
    """End the job badly, its revision too, and its upload when that was not verified yet: one code for all.

    Raises: StaleToken.
    """
    return _end(conn, job_id, token, JobState.FAILED, failure, now)


def hand_back(conn: Connection, job_id: str, token: int, now: float) -> Job:
    """Return a running job to the queue (a worker told to stop). Not a loss.

    Raises: StaleToken.
    """
    values = {"state": JobState.QUEUED, "token": token + 1, "worker_id": None, "lease_expires_at": None}
    if conn.execute(sa.update(jobs).where(_owned(job_id, token)).values(**values)).rowcount == 0:
        raise StaleToken(job_id, token)
    _say(conn, job_id, JobState.QUEUED, now, reason="handed_back")
    return load_job(conn, job_id)


def lose_job(conn: Connection, job_id: str, token: int, now: float) -> Job:
    """Take an expired attempt away: back to the queue, or `failed` at the third loss.

    A no-op when it was not lost.
    """
    lost = sa.and_(_owned(job_id, token), jobs.c.lease_expires_at <= now)
    values = {
        "state": JobState.QUEUED,
        "token": token + 1,
        "losses": jobs.c.losses + 1,
        "worker_id": None,
        "lease_expires_at": None,
    }
    if conn.execute(sa.update(jobs).where(lost).values(**values)).rowcount == 0:
        return load_job(conn, job_id)
    job = load_job(conn, job_id)
    _say(conn, job_id, JobState.QUEUED, now, reason="worker_lost", losses=job.losses)
    if job.losses < MAX_LOSSES:
        return job
    return _finish(conn, job, JobState.FAILED, _lost_too_often(job), now)


def cancel_job(conn: Connection, tenant_id: str, job_id: str, now: float) -> Job:
    """Cancel at once; a running attempt learns it from `renew`. A repeat is a no-op, and the log stays.

    Raises: JobNotFound, IllegalTransition: it ended before.
    """
    job = get_job(conn, tenant_id, job_id)
    open_states = jobs_before(JobState.CANCELLED)
    done = conn.execute(
        sa.update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state.in_(open_states))
        .values(state=JobState.CANCELLED, token=jobs.c.token + 1, lease_expires_at=None, finished_at=now)
    )
    job = load_job(conn, job_id)
    if done.rowcount == 0:
        if job.state is JobState.CANCELLED:
            return job
        raise IllegalTransition("job", job_id, job.state, JobState.CANCELLED)
    _say(conn, job_id, JobState.CANCELLED, now)
    set_revision_failed(conn, job.revision_id, Failure("job_cancelled", "the compile job was cancelled"), now)
    return load_job(conn, job_id)


def _owned(job_id: str, token: int) -> sa.ColumnElement[bool]:
    return sa.and_(jobs.c.id == job_id, jobs.c.token == token, jobs.c.state == JobState.RUNNING)


def _end(
    conn: Connection, job_id: str, token: int, state: JobState, failure: Failure | None, now: float
) -> Job:
    owned = conn.execute(sa.update(jobs).where(_owned(job_id, token)).values(token=token + 1)).rowcount
    if owned == 0:
        raise StaleToken(job_id, token)
    return _finish(conn, load_job(conn, job_id), state, failure, now)


def _finish(conn: Connection, job: Job, state: JobState, failure: Failure | None, now: float) -> Job:
    values: dict[str, Any] = {"state": state, "finished_at": now, "lease_expires_at": None}
    if failure is None:
        values["fraction"] = 1.0
        _say(conn, job.id, state, now)
    else:
        values |= {"failure_code": failure.code, "failure_message": failure.message}
        _say(conn, job.id, state, now, code=failure.code, message=failure.message)
        set_revision_failed(conn, job.revision_id, failure, now)
    conn.execute(sa.update(jobs).where(jobs.c.id == job.id).values(**values))
    return load_job(conn, job.id)


def _say(conn: Connection, job_id: str, state: JobState, now: float, **facts: Any) -> None:
    append_event_row(conn, job_id, JobEventKind.STATE, {"state": state, **facts}, now)


def _lost_too_often(job: Job) -> Failure:
    memory = "" if job.peak_rss_bytes is None else f", peak memory {job.peak_rss_bytes / (1 << 20):.0f} MiB"
    stage = "" if job.stage is None else f" in stage {job.stage!r}"
    text = f"the worker was lost {job.losses} times (killed, or out of memory){stage}{memory}"
    return Failure("worker_lost", text)
