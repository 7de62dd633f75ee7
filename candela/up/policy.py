"""When a process that ended is started again. Pure: the supervisor owns clock and processes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """Back-off doubles from `first_s` to `longest_s`; a process that ran for `steady_s` starts afresh."""

    first_s: float = 0.2
    longest_s: float = 10.0
    steady_s: float = 30.0

    def failures_after(self, failures: int, ran_s: float) -> int:
        """Failures in a row, counting the one that just happened."""
        return 1 if ran_s >= self.steady_s else failures + 1

    def delay_s(self, failures: int) -> float:
        assert failures >= 1, "asked after a failure"
        return float(min(self.first_s * 2.0 ** min(failures - 1, 32), self.longest_s))
