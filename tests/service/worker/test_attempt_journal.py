"""A job's journal outlives its attempts, and ends with the job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from common.clock import wall_clock
from storage.blobs import DiskBlobs
from storage.db import Database
from storage.records import Job
from tests.support.fake_compiler import FakeCompiler
from worker.attempt import CompileWorker, Outcome, WorkerRules
from worker.compile_process import Watch
from worker.errors import CompileDied, CompileFailed

Run = Callable[[FakeCompiler, Job], Outcome]


@pytest.fixture
def run(database: Database, blobs: DiskBlobs, short_dir: Path) -> Run:
    """One attempt at a job, with that compiler."""
    folders = [short_dir / name for name in ("work", "cache", "logs", "journals")]
    rules = WorkerRules("wrk_1", "v1", 15.0, "none", *folders)

    def attempt(compiler: FakeCompiler, job: Job) -> Outcome:
        stopping = threading.Event()
        return CompileWorker(
            rules, database, blobs, compiler, wall_clock, lambda: False, lambda _: None, stopping
        ).run(job.id)

    return attempt


def test_attempts_of_a_job_share_a_journal_until_one_ends_it(run: Run, make_job: Callable[..., Job]) -> None:
    job, other = make_job(), make_job()

    def write(compiler: FakeCompiler) -> None:
        journal = compiler.requests[-1].journal
        assert journal is not None
        Path(journal).parent.mkdir(exist_ok=True)
        with Path(journal).open("a") as file:
            file.write("a line\n")

    def refuse(watch: Watch) -> None:
        write(refusing)
        raise CompileFailed("no", code="unsupported_model")

    def die_half_way(watch: Watch) -> None:
        write(dying)
        raise CompileDied("was ended by SIGKILL", 0, "")

    refusing, dying, working = FakeCompiler(refuse), FakeCompiler(die_half_way), FakeCompiler()
    assert run(refusing, other) is Outcome.FAILED
    assert [run(dying, job), run(dying, job)] == [Outcome.HANDED_BACK, Outcome.HANDED_BACK]
    (journal,) = {r.journal for r in dying.requests}
    assert journal is not None
    assert Path(journal).read_text() == "a line\n" * 2
    assert list(Path(journal).parent.iterdir()) == [Path(journal)]
    assert run(working, job) is Outcome.SUCCEEDED
    assert working.requests[0].journal == journal
    assert list(Path(journal).parent.iterdir()) == []
