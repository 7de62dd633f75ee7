"""Compile jobs: claim, lease, fence, losses, cancel, log."""

from __future__ import annotations

import pytest

from storage import jobs, models, uploads
from storage.errors import IllegalTransition, JobNotFound, StaleToken
from storage.records import Failure, JobEventKind, JobState, RevisionState, UploadState
from tests.support.storage_rows import NOW, a_file, a_job, a_tenant

LEASE_S = 30.0
PROGRESS = {"stage": "search", "fraction": 0.25, "message": "kernel 3 of 12"}


def claim(conn, job, now=NOW, worker="wrk_1"):
    """Claim, with the certainty that it works."""
    claimed = jobs.claim_job(conn, job.id, worker, now, LEASE_S)
    assert claimed is not None
    return claimed


def lose(conn, job, times):
    """Let `times` attempts run into their lease."""
    now = NOW
    for _ in range(times):
        claimed = claim(conn, job, now)
        now += LEASE_S
        job = jobs.lose_job(conn, job.id, claimed.token, now)
    return job


def kinds(conn, job):
    return [e.body.get("state", e.kind) for e in jobs.events_after(conn, job.tenant_id, job.id)]


def test_a_claim_starts_an_attempt(conn, tenant):
    job = a_job(conn, tenant)
    claimed = claim(conn, job)
    assert (claimed.attempt, claimed.lease_expires_at) == (1, NOW + LEASE_S)
    assert (claimed.job.state, claimed.job.worker_id, claimed.job.started_at) == (J.RUNNING, "wrk_1", NOW)
    assert claimed.token > job.token


def test_a_claim_sets_the_revision_compiling(conn, tenant):
    job = a_job(conn, tenant)
    claim(conn, job)
    assert models.load_revision(conn, job.revision_id).state is RevisionState.COMPILING


@pytest.mark.pitfall("U1")
def test_a_job_under_a_live_lease_can_not_be_claimed(conn, tenant):
    job = a_job(conn, tenant)
    claim(conn, job)
    assert jobs.claim_job(conn, job.id, "wrk_2", NOW + LEASE_S - 0.1, LEASE_S) is None


def test_an_expired_lease_is_taken_over(conn, tenant):
    job = a_job(conn, tenant)
    first = claim(conn, job)
    second = claim(conn, job, NOW + LEASE_S, "wrk_2")
    assert (second.attempt, second.job.losses, second.job.worker_id) == (2, 1, "wrk_2")
    assert second.token > first.token


@pytest.mark.pitfall("U1")
def test_a_taken_over_attempt_can_write_nothing(conn, tenant):
    job = a_job(conn, tenant)
    stale = claim(conn, job).token
    claim(conn, job, NOW + LEASE_S)
    assert not jobs.renew(conn, job.id, stale, NOW, LEASE_S)
    with pytest.raises(StaleToken):
        jobs.append_event(conn, job.id, stale, JobEventKind.PROGRESS, PROGRESS, NOW)
    with pytest.raises(StaleToken):
        jobs.succeed(conn, job.id, stale, NOW)
    with pytest.raises(StaleToken):
        jobs.fail(conn, job.id, stale, Failure("x", "y"), NOW)
    with pytest.raises(StaleToken):
        jobs.hand_back(conn, job.id, stale, NOW)


def test_a_renewed_lease_lasts_longer(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    assert jobs.renew(conn, job.id, token, NOW + 20, LEASE_S)
    assert jobs.expired_jobs(conn, NOW + 49.9) == ()
    assert [j.id for j in jobs.expired_jobs(conn, NOW + 50)] == [job.id]


def test_a_renewal_keeps_the_highest_memory(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    jobs.renew(conn, job.id, token, NOW, LEASE_S, rss_bytes=700)
    jobs.renew(conn, job.id, token, NOW, LEASE_S, rss_bytes=500)
    jobs.renew(conn, job.id, token, NOW, LEASE_S)
    assert jobs.load_job(conn, job.id).peak_rss_bytes == 700


def test_a_lost_attempt_is_queued_again(conn, tenant):
    job = lose(conn, a_job(conn, tenant), 1)
    assert (job.state, job.losses, job.attempts, job.lease_expires_at) == (J.QUEUED, 1, 1, None)
    assert kinds(conn, job) == ["queued", "running", "queued"]


def test_the_third_loss_fails_the_job_with_the_reason(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, lose(conn, job, 2), NOW + 60).token
    jobs.append_event(conn, job.id, token, JobEventKind.PROGRESS, PROGRESS, NOW)
    jobs.renew(conn, job.id, token, NOW + 60, LEASE_S, rss_bytes=3 << 30)
    failed = jobs.lose_job(conn, job.id, token, NOW + 90)
    assert (failed.state, failed.losses) == (J.FAILED, 3)
    assert failed.failure == Failure(
        "worker_lost",
        "the worker was lost 3 times (killed, or out of memory) in stage 'search', peak memory 3072 MiB",
    )


def test_a_job_lost_three_times_is_not_claimed_again(conn, tenant):
    job = a_job(conn, tenant)
    claim(conn, lose(conn, job, 2), NOW + 60)
    assert jobs.claim_job(conn, job.id, "wrk_9", NOW + 90, LEASE_S) is None
    assert jobs.load_job(conn, job.id).state is JobState.FAILED


def test_losing_a_job_whose_lease_was_renewed_does_nothing(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    assert jobs.lose_job(conn, job.id, token, NOW + LEASE_S - 1).state is JobState.RUNNING


def test_losing_an_attempt_twice_counts_once(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    jobs.lose_job(conn, job.id, token, NOW + LEASE_S)
    assert jobs.lose_job(conn, job.id, token, NOW + LEASE_S).losses == 1


def test_a_handed_back_job_is_queued_and_not_a_loss(conn, tenant):
    job = a_job(conn, tenant)
    back = jobs.hand_back(conn, job.id, claim(conn, job).token, NOW)
    assert (back.state, back.losses, back.worker_id) == (J.QUEUED, 0, None)
    assert claim(conn, job).attempt == 2


def test_success_ends_the_job(conn, tenant):
    job = a_job(conn, tenant)
    done = jobs.succeed(conn, job.id, claim(conn, job).token, NOW + 5)
    assert (done.state, done.fraction, done.finished_at, done.lease_expires_at) == (
        J.SUCCEEDED,
        1.0,
        NOW + 5,
        None,
    )
    assert jobs.claim_job(conn, job.id, "wrk_2", NOW + 99, LEASE_S) is None


def test_failure_reaches_revision_and_upload_with_one_code(conn, tenant):
    job = a_job(conn, tenant)
    reason = Failure("pickle_refused", "model.bin is a pickle")
    failed = jobs.fail(conn, job.id, claim(conn, job).token, reason, NOW)
    revision = models.load_revision(conn, job.revision_id)
    upload = uploads.load_upload(conn, job.upload_id)
    assert (failed.state, failed.failure) == (JobState.FAILED, reason)
    assert (revision.state, revision.failure) == (RevisionState.FAILED, reason)
    assert (upload.state, upload.failure) == (UploadState.FAILED, reason)


@pytest.mark.pitfall("U6")
@pytest.mark.parametrize("is_running", [False, True])
def test_an_open_job_is_cancelled_at_once(conn, tenant, is_running):
    job = a_job(conn, tenant)
    token = claim(conn, job).token if is_running else 0
    cancelled = jobs.cancel_job(conn, tenant.id, job.id, NOW + 1)
    assert (cancelled.state, cancelled.finished_at) == (J.CANCELLED, NOW + 1)
    assert not jobs.renew(conn, job.id, token, NOW + 2, LEASE_S)
    assert jobs.claim_job(conn, job.id, "wrk_2", NOW + 99, LEASE_S) is None
    assert models.load_revision(conn, job.revision_id).failure.code == "job_cancelled"


def test_cancelling_again_is_a_no_op(conn, tenant):
    job = a_job(conn, tenant)
    first = jobs.cancel_job(conn, tenant.id, job.id, NOW + 1)
    assert jobs.cancel_job(conn, tenant.id, job.id, NOW + 2) == first


def test_a_finished_job_can_not_be_cancelled(conn, tenant):
    job = a_job(conn, tenant)
    jobs.succeed(conn, job.id, claim(conn, job).token, NOW)
    with pytest.raises(IllegalTransition):
        jobs.cancel_job(conn, tenant.id, job.id, NOW)


def test_another_tenants_job_does_not_exist(conn, tenant):
    job = a_job(conn, tenant)
    other = a_tenant(conn, "other")
    with pytest.raises(JobNotFound):
        jobs.get_job(conn, other.id, job.id)
    with pytest.raises(JobNotFound):
        jobs.cancel_job(conn, other.id, job.id, NOW)
    assert jobs.events_after(conn, other.id, job.id) == ()
    assert jobs.list_jobs(conn, other.id) == ()


def test_events_are_numbered_within_their_job(conn, tenant):
    jobs_of_two = [a_job(conn, tenant, "m", a_file("a", text)) for text in ("1", "2")]
    tokens = [claim(conn, job).token for job in jobs_of_two]
    for job, token in zip(jobs_of_two * 2, tokens * 2, strict=True):
        jobs.append_event(conn, job.id, token, JobEventKind.LOG, {"message": "hello"}, NOW)
    for job in jobs_of_two:
        assert [e.seq for e in jobs.events_after(conn, tenant.id, job.id)] == [1, 2, 3, 4]


def test_events_can_be_read_from_where_one_stopped(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    event = jobs.append_event(conn, job.id, token, JobEventKind.PROGRESS, PROGRESS, NOW)
    assert jobs.events_after(conn, tenant.id, job.id, event.seq - 1) == (event,)
    assert jobs.events_after(conn, tenant.id, job.id, event.seq) == ()
    assert (event.attempt, event.body) == (1, PROGRESS)


def test_progress_shows_in_the_job(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    jobs.append_event(conn, job.id, token, JobEventKind.PROGRESS, PROGRESS, NOW)
    seen = jobs.get_job(conn, tenant.id, job.id)
    assert (seen.stage, seen.fraction) == ("search", 0.25)


def test_a_cancelled_job_keeps_its_log(conn, tenant):
    job = a_job(conn, tenant)
    token = claim(conn, job).token
    jobs.append_event(conn, job.id, token, JobEventKind.LOG, {"message": "hello"}, NOW)
    jobs.cancel_job(conn, tenant.id, job.id, NOW)
    assert kinds(conn, job) == ["queued", "running", "log", "cancelled"]


def test_queued_jobs_are_listed_oldest_first_over_all_tenants(conn, tenant):
    first = a_job(conn, tenant)
    second = a_job(conn, a_tenant(conn, "other"))
    assert [j.id for j in jobs.queued_jobs(conn)] == sorted([first.id, second.id])
    assert jobs.queued_jobs(conn, created_before=NOW) == ()
    claim(conn, first)
    assert [j.id for j in jobs.queued_jobs(conn)] == [second.id]


def test_jobs_are_paged_newest_first(conn, tenant):
    made = sorted(a_job(conn, tenant, "m", a_file("a", str(i))).id for i in range(3))
    assert [j.id for j in jobs.list_jobs(conn, tenant.id, limit=2)] == [made[2], made[1]]
    assert [j.id for j in jobs.list_jobs(conn, tenant.id, before=made[1])] == [made[0]]


def test_an_unknown_job_is_an_error(conn):
    with pytest.raises(JobNotFound):
        jobs.load_job(conn, "job_none")
    with pytest.raises(JobNotFound):
        jobs.claim_job(conn, "job_none", "w", NOW, LEASE_S)


J = JobState
