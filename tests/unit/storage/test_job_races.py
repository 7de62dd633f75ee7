"""Many workers, one job."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from storage import jobs
from storage.errors import IllegalTransition, StaleToken
from storage.records import JobEventKind, JobState
from tests.support.storage_rows import NOW, a_job, a_tenant


def test_of_many_workers_one_claims_a_job(db):
    job = make_job(db)

    def claim(n: int) -> bool:
        with db.write() as conn:
            return jobs.claim_job(conn, job.id, f"wrk_{n}", NOW, 30.0) is not None

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(claim, range(16))) == 1


def test_of_many_workers_one_takes_over_an_expired_job(db):
    job = make_job(db)
    with db.write() as conn:
        jobs.claim_job(conn, job.id, "wrk_dead", NOW, 30.0)

    def claim(n: int) -> bool:
        with db.write() as conn:
            return jobs.claim_job(conn, job.id, f"wrk_{n}", NOW + 31, 30.0) is not None

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(claim, range(16))) == 1
    with db.read() as conn:
        assert (jobs.load_job(conn, job.id).losses, jobs.load_job(conn, job.id).attempts) == (1, 2)


def test_a_job_ends_once_when_success_and_cancel_race(db):
    job = make_job(db)
    with db.write() as conn:
        token = jobs.claim_job(conn, job.id, "wrk_1", NOW, 30.0).token

    def succeed() -> str:
        try:
            with db.write() as conn:
                return jobs.succeed(conn, job.id, token, NOW).state
        except StaleToken:
            return "stale"

    def cancel() -> str:
        try:
            with db.write() as conn:
                return jobs.cancel_job(conn, job.tenant_id, job.id, NOW).state
        except IllegalTransition:
            return "ended"

    with ThreadPoolExecutor(2) as pool:
        outcome = {pool.submit(succeed), pool.submit(cancel)}
    results = {f.result() for f in outcome}
    assert results in ({JobState.SUCCEEDED, "ended"}, {"stale", JobState.CANCELLED})


def test_events_written_at_once_have_numbers_without_gap_or_double(db):
    job = make_job(db)
    with db.write() as conn:
        token = jobs.claim_job(conn, job.id, "wrk_1", NOW, 30.0).token

    def say(n: int) -> None:
        with db.write() as conn:
            jobs.append_event(conn, job.id, token, JobEventKind.LOG, {"n": n}, NOW)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(say, range(40)))
    with db.read() as conn:
        assert [e.seq for e in jobs.events_after(conn, job.tenant_id, job.id)] == list(range(1, 43))


def make_job(db):
    with db.write() as conn:
        return a_job(conn, a_tenant(conn))
