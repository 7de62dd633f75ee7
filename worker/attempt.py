"""One attempt at a job: claim, fetch, compile, publish, and one transaction that says how it ended.

Redelivery, worker death and double claims are harmless: every write carries the claim's token, and the build
that is published first stands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import structlog

from common.clock import Clock
from common.errors import PlatformError
from storage import jobs, ledger
from storage.billing import default_price_book
from storage.blobs import BlobStore
from storage.db import Database
from storage.errors import StaleToken
from storage.models import set_revision_ready
from storage.records import Claim, Failure, JobEventKind, Meter, Revision, UsageEvent
from storage.revisions import load_revision, move_builds
from worker.build_key import build_key, settings_from
from worker.compile_process import Compiler, Watch
from worker.errors import CompileDied, CompileStopped
from worker.heartbeat import Heartbeat
from worker.materialise import materialise
from worker.progress import COMPILED, FETCHED, ProgressLog
from worker.protocol import CompileRequest, CompileSettings, Progress
from worker.publishing import BuildFacts, PublishedBuild, find_build, publish_build
from worker.workspace import Workspace, workspace

log = structlog.get_logger()

MAX_ATTEMPTS = 3


class Outcome(StrEnum):
    """What became of a delivered job id. `lost`: cancelled or taken over, so nothing more was written."""

    NOT_CLAIMED = "not_claimed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    HANDED_BACK = "handed_back"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class WorkerRules:
    """What is the same for all jobs of this worker."""

    worker_id: str
    compiler_version: str
    lease_s: float
    default_budget: str
    work_dir: Path
    cache_dir: Path
    logs_dir: Path
    journals_dir: Path


@dataclass(slots=True)
class CompileWorker:
    """Runs attempts, one at a time. `stopping` is set when the worker must end; `enqueue` hands an id on."""

    rules: WorkerRules
    database: Database
    blobs: BlobStore
    compiler: Compiler
    clock: Clock
    is_busy: Callable[[], bool]
    enqueue: Callable[[str], None]
    stopping: threading.Event

    def run(self, job_id: str) -> Outcome:
        """Work on the job as far as it needs work. Never raises for what is wrong with a checkpoint."""
        if self.stopping.is_set():
            self.enqueue(job_id)
            return Outcome.HANDED_BACK
        with self.database.write() as conn:
            claim = jobs.claim_job(conn, job_id, self.rules.worker_id, self.clock(), self.rules.lease_s)
        if claim is None:
            log.info("job_not_claimed", job_id=job_id)
            return Outcome.NOT_CLAIMED
        with structlog.contextvars.bound_contextvars(
            job_id=job_id, tenant_id=claim.job.tenant_id, attempt=claim.attempt
        ):
            log.info("job_claimed", worker_id=self.rules.worker_id)
            outcome = self._attempt(claim)
            log.info("job_left", outcome=str(outcome))
            return outcome

    def _attempt(self, claim: Claim) -> Outcome:
        """Run the attempt and translate how it ended, once."""
        with Heartbeat(self._renewal(claim), self.rules.lease_s, self.clock) as heartbeat:
            try:
                return self._build(claim, heartbeat)
            except StaleToken:
                return Outcome.LOST
            except CompileStopped:
                return Outcome.LOST if heartbeat.is_lost else self._hand_back(claim)
            except CompileDied as error:
                return self._retry(claim, Failure(error.code, str(error)))
            except PlatformError as error:
                return self._fail(claim, Failure(error.code, str(error)))
            except Exception as error:  # the edge: a store that is away must not lose the job
                log.error("attempt_broken", exc_info=True)
                return self._retry(claim, Failure("internal_error", f"{type(error).__name__}: {error}"))

    def _build(self, claim: Claim, heartbeat: Heartbeat) -> Outcome:
        started_at = self.clock()
        job = claim.job
        with self.database.read() as conn:
            revision = load_revision(conn, job.revision_id)
        settings = settings_from(revision.options, self.rules.default_budget)
        key = build_key(revision.files, settings, self.rules.compiler_version)
        if (found := find_build(self.blobs, job.tenant_id, key)) is not None:
            self._log(claim, f"reused the build {key[:12]}")
            return self._succeed(claim, found)
        progress = ProgressLog(lambda p: self._progress(claim, p), self.clock)

        def should_stop() -> bool:
            return heartbeat.is_lost or self.stopping.is_set()

        with workspace(self.rules.work_dir, job.id, claim.token) as space:
            self._fetch(revision, space, progress, should_stop)
            done = self.compiler.compile(
                self._request(claim, space, settings),
                self._log_path(claim),
                Watch(progress.compiling, heartbeat.note_memory, should_stop, self.is_busy),
            )
            progress.say("publish", COMPILED)
            compile_s = max(round(self.clock() - started_at), 1)
            facts = BuildFacts(job.id, compile_s, done.info)
            attempt = f"{job.id}-{claim.token}"
            built = publish_build(self.blobs, job.tenant_id, key, attempt, space, facts)
            self._journal_path(claim).unlink(missing_ok=True)
            return self._succeed(claim, built)

    def _fetch(
        self, revision: Revision, space: Workspace, progress: ProgressLog, should_stop: Callable[[], bool]
    ) -> None:
        whole = max(sum(file.size_bytes for file in revision.files), 1)

        def on_bytes(done: int) -> None:
            progress.say("fetch", FETCHED * done / whole, f"{done} of {whole} bytes")

        materialise(self.blobs, revision.files, space.checkpoint, on_bytes, should_stop)

    def _succeed(self, claim: Claim, published: PublishedBuild) -> Outcome:
        """Revision ready, job succeeded and its compile billed, in one transaction.

        A compile that an earlier attempt of this job published before it died is billed now.
        """
        job, now = claim.job, self.clock()
        with self.database.write() as conn:
            jobs.succeed(conn, job.id, claim.token, now)
            set_revision_ready(conn, job.revision_id, published.build, now)
            move_builds(conn, job.tenant_id, published.build)
            if published.facts.job_id == job.id:
                event = UsageEvent(
                    tenant_id=job.tenant_id,
                    request_id=job.id,
                    meter=Meter.COMPILE_SECONDS,
                    quantity=published.facts.compile_s,
                    price_version=default_price_book().version,
                    model=job.model_name,
                    occurred_at=now,
                )
                ledger.append(conn, event, now=now)
        return Outcome.SUCCEEDED

    def _fail(self, claim: Claim, failure: Failure) -> Outcome:
        self._journal_path(claim).unlink(missing_ok=True)
        log.warning("job_failed", code=failure.code, error=failure.message)
        try:
            with self.database.write() as conn:
                jobs.fail(conn, claim.job.id, claim.token, failure, self.clock())
        except StaleToken:
            return Outcome.LOST
        return Outcome.FAILED

    def _retry(self, claim: Claim, failure: Failure) -> Outcome:
        """Another attempt may fare better; the last one fails with what it died of."""
        if claim.attempt >= MAX_ATTEMPTS:
            text = f"attempt {claim.attempt} of {MAX_ATTEMPTS}: {failure.message}"
            return self._fail(claim, Failure(failure.code, text))
        try:
            self._log(claim, f"attempt {claim.attempt}: {failure.message}")
        except StaleToken:
            return Outcome.LOST
        return self._hand_back(claim)

    def _hand_back(self, claim: Claim) -> Outcome:
        try:
            with self.database.write() as conn:
                jobs.hand_back(conn, claim.job.id, claim.token, self.clock())
        except StaleToken:
            return Outcome.LOST
        self.enqueue(claim.job.id)
        return Outcome.HANDED_BACK

    def _renewal(self, claim: Claim) -> Callable[[int | None], bool]:
        def renew(rss_bytes: int | None) -> bool:
            now, lease_s = self.clock(), self.rules.lease_s
            with self.database.write() as conn:
                return jobs.renew(conn, claim.job.id, claim.token, now, lease_s, rss_bytes)

        return renew

    def _progress(self, claim: Claim, progress: Progress) -> None:
        body = {"stage": progress.stage, "fraction": progress.fraction, "message": progress.message}
        self._event(claim, JobEventKind.PROGRESS, body)

    def _log(self, claim: Claim, message: str) -> None:
        self._event(claim, JobEventKind.LOG, {"message": message})

    def _event(self, claim: Claim, kind: JobEventKind, body: dict[str, object]) -> None:
        with self.database.write() as conn:
            jobs.append_event(conn, claim.job.id, claim.token, kind, body, self.clock())

    def _request(self, claim: Claim, space: Workspace, settings: CompileSettings) -> CompileRequest:
        cache, journal = str(self.rules.cache_dir), str(self._journal_path(claim))
        return CompileRequest(str(space.checkpoint), str(space.out), cache, settings, journal)

    def _journal_path(self, claim: Claim) -> Path:
        """What was measured outlives an attempt that does not end well; the next one goes on from it."""
        return self.rules.journals_dir / f"compile-{claim.job.id}.jsonl"

    def _log_path(self, claim: Claim) -> Path:
        return self.rules.logs_dir / f"compile-{claim.job.id}-{claim.attempt}.log"
