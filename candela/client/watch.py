"""Following a job across broken connections: what was seen, whether it is over, how long to wait. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ClientError, JobFailed
from .results import TERMINAL_JOB_STATES, Job, JobEvent


@dataclass(slots=True)
class JobWatch:
    """Remembers the last event, so that a reconnect starts behind it and repeats nothing."""

    job_id: str
    attempts: int = 8
    last_seq: int = 0
    is_over: bool = False
    _failures: int = 0

    def accept(self, event: JobEvent) -> bool:
        """Whether the event is new; the one that tells of a last state ends the watch."""
        if event.seq <= self.last_seq:
            return False
        self.last_seq, self._failures = event.seq, 0
        self.is_over = event.kind == "state" and event.body.get("state") in TERMINAL_JOB_STATES
        return True

    def wait_s(self, error: ClientError | None) -> float:
        """Seconds before the next connection, after `error` or a stream that just ended.

        Raises:
            ClientError: `error` itself, when nothing came `attempts` times in a row.
        """
        if error is None:
            return 0.2
        self._failures += 1
        if self._failures >= self.attempts:
            raise error
        return min(0.25 * 2.0 ** (self._failures - 1), 5.0)


def require_success(job: Job) -> Job:
    """Raises: `JobFailed` when the job ended in any other way than well."""
    if job.state == "succeeded":
        return job
    if job.failure is not None:
        raise JobFailed(job.id, job.state, job.failure.message, code=job.failure.code)
    raise JobFailed(job.id, job.state, f"job {job.id} was {job.state}")
