"""How long a deployment waits before its next start after replicas failed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_LONGEST_S = 60.0
_STEADY_S = 60.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures in a row and the time before which nothing is started. The first failure costs no wait."""

    failures: int = 0
    not_before: float = 0.0

    def may_start(self, now: float) -> bool:
        return now >= self.not_before

    def after_failure(self, now: float, ready_for_s: float | None) -> Backoff:
        """One more replica ended badly; one that had been ready for a minute starts the count anew."""
        is_steady = ready_for_s is not None and ready_for_s >= _STEADY_S
        failures = 1 if is_steady else self.failures + 1
        return replace(self, failures=failures, not_before=now + delay_s(failures))


def delay_s(failures: int) -> float:
    """0, 1, 2, 4, ... seconds, at most a minute."""
    if failures < 2:
        return 0.0
    return min(2.0 ** min(failures - 2, 16), _LONGEST_S)
