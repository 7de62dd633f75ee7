"""A damaged build is compiled anew, and every revision that had it gets the new one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from common.clock import wall_clock
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.records import Build, Job
from storage.revisions import load_revision
from tests.support.fake_compiler import FakeCompiler
from worker.attempt import CompileWorker, Outcome, WorkerRules

MakeJob = Callable[..., Job]


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
def worker(database: Database, blobs: DiskBlobs, short_dir: Path, compiler: FakeCompiler) -> CompileWorker:
    rules = WorkerRules(
        worker_id="wrk_1",
        compiler_version="v1",
        lease_s=15.0,
        default_budget="none",
        work_dir=short_dir / "work",
        cache_dir=short_dir / "cache",
        logs_dir=short_dir / "logs",
        journals_dir=short_dir / "journals",
    )
    return CompileWorker(
        rules, database, blobs, compiler, wall_clock, lambda: False, lambda _: None, threading.Event()
    )


def build_of(database: Database, job: Job) -> Build:
    with database.read() as conn:
        return load_revision(conn, job.revision_id).require_build()


@pytest.mark.pitfall("C28")
@pytest.mark.parametrize(
    "name", ["artifact/kernels.so", "artifact/manifest.json", "tokenizer/tokenizer.json"]
)
def test_compiling_again_heals_the_revisions_that_had_the_damaged_build(
    worker: CompileWorker,
    compiler: FakeCompiler,
    database: Database,
    blobs: DiskBlobs,
    make_job: MakeJob,
    name: str,
) -> None:
    first = make_job()
    assert worker.run(first.id) is Outcome.SUCCEEDED
    damaged = build_of(database, first)
    path = blobs.path(damaged.artifact_prefix).parent / name
    path.write_bytes(bytes(byte ^ 1 for byte in path.read_bytes()))
    second = make_job()
    assert worker.run(second.id) is Outcome.SUCCEEDED
    healed = build_of(database, first)
    assert len(compiler.requests) == 2
    assert healed.artifact_prefix != damaged.artifact_prefix
    assert healed == build_of(database, second)


def test_an_undamaged_build_stays_where_it_is(
    worker: CompileWorker, compiler: FakeCompiler, database: Database, make_job: MakeJob
) -> None:
    first, second = make_job(), make_job(model="again")
    assert worker.run(first.id) is Outcome.SUCCEEDED
    before = build_of(database, first)
    assert worker.run(second.id) is Outcome.SUCCEEDED
    assert len(compiler.requests) == 1
    assert build_of(database, first) == build_of(database, second) == before
