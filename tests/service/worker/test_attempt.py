"""Attempts on real stores, with a compiler that tests steer: what each ending leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from common.clock import wall_clock
from storage import jobs, ledger, uploads
from storage.blobs import DiskBlobs, find_publication
from storage.db import Database
from storage.records import (
    Job,
    JobEventKind,
    JobState,
    Meter,
    Revision,
    RevisionState,
    Tenant,
    UploadState,
)
from storage.revisions import load_revision
from tests.support.fake_compiler import FakeCompiler
from tests.support.serving import SERVING_INFO
from worker.attempt import CompileWorker, Outcome, WorkerRules
from worker.compile_process import Watch
from worker.errors import CompileDied, CompileFailed, CompileOutOfMemory, CompileStopped

MakeJob = Callable[..., Job]


class Bench:
    """Workers on one set of stores."""

    def __init__(self, database: Database, blobs: DiskBlobs, home: Path) -> None:
        self.database, self.blobs, self.home = database, blobs, home
        self.enqueued: list[str] = []
        self.stopping = threading.Event()

    def worker(
        self, compiler: FakeCompiler | None = None, name: str = "wrk_1", lease_s: float = 15.0
    ) -> CompileWorker:
        rules = WorkerRules(
            worker_id=name,
            compiler_version="v1",
            lease_s=lease_s,
            default_budget="none",
            work_dir=self.home / "work",
            cache_dir=self.home / "cache",
            logs_dir=self.home / "logs",
            journals_dir=self.home / "journals",
        )
        return CompileWorker(
            rules,
            self.database,
            self.blobs,
            compiler or FakeCompiler(),
            wall_clock,
            lambda: False,
            self.enqueued.append,
            self.stopping,
        )

    def job(self, job_id: str) -> Job:
        with self.database.read() as conn:
            return jobs.load_job(conn, job_id)

    def revision(self, job: Job) -> Revision:
        with self.database.read() as conn:
            return load_revision(conn, job.revision_id)

    def upload_state(self, job: Job) -> UploadState:
        assert job.upload_id is not None
        with self.database.read() as conn:
            return uploads.load_upload(conn, job.upload_id).state

    def billed_seconds(self, tenant: Tenant) -> list[int]:
        with self.database.read() as conn:
            rows = ledger.list_ledger(conn, tenant.id)
        return [r.event.quantity for r in rows if r.event.meter is Meter.COMPILE_SECONDS]

    def log_lines(self, job: Job, kind: JobEventKind) -> list[str]:
        with self.database.read() as conn:
            events = jobs.events_after(conn, job.tenant_id, job.id)
        return [str(e.body.get("message")) for e in events if e.kind is kind]


@pytest.fixture
def bench(database: Database, blobs: DiskBlobs, short_dir: Path) -> Bench:
    return Bench(database, blobs, short_dir)


def raising(error: Exception) -> FakeCompiler:
    def meanwhile(watch: Watch) -> None:
        raise error

    return FakeCompiler(meanwhile)


def test_a_compiled_job_makes_revision_and_upload_ready(
    bench: Bench, blobs: DiskBlobs, make_job: MakeJob
) -> None:
    job = make_job()
    assert bench.worker().run(job.id) is Outcome.SUCCEEDED
    build = bench.revision(job).require_build()
    assert bench.job(job.id).state is JobState.SUCCEEDED
    assert bench.upload_state(job) is UploadState.READY
    assert build.info.items() >= SERVING_INFO.items()
    assert (blobs.path(build.artifact_prefix) / "manifest.json").read_text() == (
        '{"files": ["config.json", "model.safetensors"]}'
    )
    assert (blobs.path(build.tokenizer_prefix) / "tokenizer.json").exists()


def test_compile_seconds_are_billed_once(bench: Bench, make_job: MakeJob, tenant: Tenant) -> None:
    job = make_job()
    bench.worker().run(job.id)
    bench.worker().run(job.id)
    assert bench.billed_seconds(tenant) == [1]


def test_progress_is_readable_in_order(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()
    bench.worker().run(job.id)
    with bench.database.read() as conn:
        events = jobs.events_after(conn, job.tenant_id, job.id)
    progress = [e.body for e in events if e.kind is JobEventKind.PROGRESS]
    assert [p["stage"] for p in progress] == ["fetch", "search", "publish"]
    fractions = [p["fraction"] for p in progress]
    assert fractions == sorted(fractions)


@pytest.mark.pitfall("U5")
def test_a_finished_job_is_not_claimed_again(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()
    compiler = FakeCompiler()
    bench.worker(compiler).run(job.id)
    assert bench.worker(compiler).run(job.id) is Outcome.NOT_CLAIMED
    assert len(compiler.requests) == 1


def test_the_work_directory_is_left_clean(bench: Bench, make_job: MakeJob) -> None:
    bench.worker().run(make_job().id)
    assert list((bench.home / "work").iterdir()) == []


def test_an_equal_checkpoint_reuses_the_build_without_charge(
    bench: Bench, make_job: MakeJob, tenant: Tenant
) -> None:
    first, second = make_job(model="one"), make_job(model="two")
    compiler = FakeCompiler()
    bench.worker(compiler).run(first.id)
    assert bench.worker(compiler).run(second.id) is Outcome.SUCCEEDED
    assert len(compiler.requests) == 1
    assert bench.revision(second).build == bench.revision(first).build
    assert len(bench.billed_seconds(tenant)) == 1


def test_other_options_are_compiled_anew(bench: Bench, make_job: MakeJob) -> None:
    compiler = FakeCompiler()
    bench.worker(compiler).run(make_job(model="one").id)
    bench.worker(compiler).run(make_job(model="two", options={"dtype": "f32"}).id)
    assert [r.settings.dtype for r in compiler.requests] == ["bf16", "f32"]


def test_a_build_that_was_deleted_is_made_again(bench: Bench, blobs: DiskBlobs, make_job: MakeJob) -> None:
    first, second = make_job(model="one"), make_job(model="two")
    bench.worker().run(first.id)
    blobs.delete_prefix(bench.revision(first).require_build().artifact_prefix)
    assert bench.worker().run(second.id) is Outcome.SUCCEEDED
    build = bench.revision(second).require_build()
    assert (blobs.path(build.artifact_prefix) / "kernels.so").exists()


@pytest.mark.pitfall("U17")
def test_the_loser_of_a_race_takes_the_winners_build(
    bench: Bench, blobs: DiskBlobs, make_job: MakeJob
) -> None:
    slow, quick = make_job(model="slow"), make_job(model="quick")

    def overtake(watch: Watch) -> None:
        bench.worker(FakeCompiler(text="first")).run(quick.id)

    assert bench.worker(FakeCompiler(overtake, text="second")).run(slow.id) is Outcome.SUCCEEDED
    build = bench.revision(slow).require_build()
    assert build == bench.revision(quick).build
    assert (blobs.path(build.artifact_prefix) / "kernels.so").read_text() == "first"
    assert len(blobs.keys(f"artifacts/{slow.tenant_id}/{build.build_key}")) == 5


@pytest.mark.parametrize("code", ["truncated_file", "unexpected_pickle", "missing_shard"])
def test_what_only_the_bytes_show_fails_job_revision_and_upload_with_one_code(
    bench: Bench, make_job: MakeJob, code: str
) -> None:
    job = make_job()
    outcome = bench.worker(raising(CompileFailed("it is broken", code=code))).run(job.id)
    ended, revision = bench.job(job.id), bench.revision(job)
    assert (outcome, ended.state, revision.state) == (
        Outcome.FAILED,
        JobState.FAILED,
        RevisionState.FAILED,
    )
    assert bench.upload_state(job) is UploadState.FAILED
    assert ended.failure is not None
    assert revision.failure == ended.failure
    assert (ended.failure.code, ended.failure.message) == (code, "it is broken")


@pytest.mark.pitfall("B26")
def test_a_failed_compile_costs_nothing(bench: Bench, make_job: MakeJob, tenant: Tenant) -> None:
    bench.worker(raising(CompileFailed("no", code="unknown_architecture"))).run(make_job().id)
    assert bench.billed_seconds(tenant) == []


def test_other_bytes_than_announced_are_a_checksum_mismatch(
    bench: Bench, blobs: DiskBlobs, make_job: MakeJob
) -> None:
    job = make_job()
    blobs.put(bench.revision(job).files[1].blob_key, [b"other bytes"])
    compiler = FakeCompiler()
    assert bench.worker(compiler).run(job.id) is Outcome.FAILED
    failure = bench.job(job.id).failure
    assert failure is not None
    assert failure.code == "checksum_mismatch"
    assert compiler.requests == []


def test_a_lost_blob_is_said(bench: Bench, blobs: DiskBlobs, make_job: MakeJob) -> None:
    job = make_job()
    blobs.delete(bench.revision(job).files[0].blob_key)
    bench.worker().run(job.id)
    failure = bench.job(job.id).failure
    assert failure is not None
    assert failure.code == "blob_not_found"


def test_bad_options_fail_before_anything_is_fetched(bench: Bench, make_job: MakeJob) -> None:
    job = make_job(options={"dtype": "int3"})
    bench.worker().run(job.id)
    failure = bench.job(job.id).failure
    assert failure is not None
    assert failure.code == "invalid_compile_options"


@pytest.mark.pitfall("U3")
def test_out_of_memory_fails_at_the_first_attempt_with_the_peak(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()
    assert bench.worker(raising(CompileOutOfMemory(9 << 30, 8 << 30))).run(job.id) is Outcome.FAILED
    failure = bench.job(job.id).failure
    assert failure is not None
    assert "9216 MiB" in failure.message


@pytest.mark.pitfall("U2")
def test_a_compile_that_dies_is_tried_three_times_then_fails_with_the_reason(
    bench: Bench, make_job: MakeJob
) -> None:
    job = make_job()
    dying = raising(CompileDied("was ended by SIGKILL", 5 << 30, ""))
    outcomes = [bench.worker(dying).run(job.id) for _ in range(3)]
    assert outcomes == [Outcome.HANDED_BACK, Outcome.HANDED_BACK, Outcome.FAILED]
    assert bench.enqueued == [job.id, job.id]
    failure = bench.job(job.id).failure
    assert failure is not None
    assert failure.message == (
        "attempt 3 of 3: the compile process was ended by SIGKILL (peak memory 5120 MiB)"
    )


def test_a_fault_of_ours_is_retried_and_named(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()
    for _ in range(3):
        bench.worker(raising(RuntimeError("a bug"))).run(job.id)
    failure = bench.job(job.id).failure
    assert failure is not None
    assert (failure.code, failure.message) == (
        "internal_error",
        "attempt 3 of 3: RuntimeError: a bug",
    )


@pytest.mark.pitfall("U6")
def test_a_cancelled_job_stops_its_attempt(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()

    def cancel(watch: Watch) -> None:
        with bench.database.write() as conn:
            jobs.cancel_job(conn, job.tenant_id, job.id, wall_clock())
        while not watch.should_stop():
            pass
        raise CompileStopped

    assert bench.worker(FakeCompiler(cancel), lease_s=0.2).run(job.id) is Outcome.LOST
    assert bench.job(job.id).state is JobState.CANCELLED
    assert bench.enqueued == []


def test_a_job_cancelled_in_the_last_moment_publishes_no_revision(
    bench: Bench, make_job: MakeJob, tenant: Tenant
) -> None:
    job = make_job()

    def cancel(watch: Watch) -> None:
        with bench.database.write() as conn:
            jobs.cancel_job(conn, job.tenant_id, job.id, wall_clock())

    assert bench.worker(FakeCompiler(cancel)).run(job.id) is Outcome.LOST
    assert bench.revision(job).state is RevisionState.FAILED
    assert bench.billed_seconds(tenant) == []


@pytest.mark.pitfall("U8")
def test_a_worker_told_to_stop_hands_the_job_back(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()

    def stop(watch: Watch) -> None:
        bench.stopping.set()
        assert watch.should_stop()
        raise CompileStopped

    assert bench.worker(FakeCompiler(stop)).run(job.id) is Outcome.HANDED_BACK
    handed_back = bench.job(job.id)
    assert (handed_back.state, handed_back.losses, bench.enqueued) == (JobState.QUEUED, 0, [job.id])


def test_a_stopping_worker_claims_nothing(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()
    bench.stopping.set()
    assert bench.worker().run(job.id) is Outcome.HANDED_BACK
    assert bench.job(job.id).attempts == 0


@pytest.mark.pitfall("U5")
def test_a_worker_that_lost_its_job_writes_nothing_more(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()

    def overtaken(watch: Watch) -> None:
        later = wall_clock() + 3600.0
        with bench.database.write() as conn:
            assert jobs.claim_job(conn, job.id, "wrk_2", later, 15.0) is not None

    assert bench.worker(FakeCompiler(overtaken)).run(job.id) is Outcome.LOST
    assert bench.job(job.id).worker_id == "wrk_2"


@pytest.mark.pitfall("U5")
def test_a_build_published_before_its_worker_died_is_found_and_billed(
    bench: Bench, blobs: DiskBlobs, make_job: MakeJob, tenant: Tenant
) -> None:
    job = make_job()
    compiler = FakeCompiler()
    first = bench.worker(compiler)
    first.database = Unreachable(bench.database)  # type: ignore[assignment]
    with pytest.raises(OSError, match="away"):
        first.run(job.id)
    with bench.database.write() as conn:
        running = jobs.load_job(conn, job.id)
        jobs.lose_job(conn, job.id, running.token, wall_clock() + 3600.0)
    assert bench.worker(compiler).run(job.id) is Outcome.SUCCEEDED
    assert len(compiler.requests) == 1
    assert bench.billed_seconds(tenant) == [1]
    key = bench.revision(job).require_build().build_key
    assert find_publication(blobs, tenant.id, key) is not None


def test_the_peak_memory_is_kept_on_the_job(bench: Bench, make_job: MakeJob) -> None:
    job = make_job()
    beaten = threading.Event()

    def wait(watch: Watch) -> None:
        beaten.wait(0.3)

    bench.worker(FakeCompiler(wait), lease_s=0.5).run(job.id)
    assert bench.job(job.id).peak_rss_bytes == 123 << 20


class Unreachable:
    """A database that goes away once the compile is published: after the `publish` progress was written."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = 0

    def read(self) -> object:
        return self._database.read()

    def write(self) -> object:
        self._writes += 1
        if self._writes > 4:
            raise OSError("the database is away")
        return self._database.write()
