"""When to try again, and after how long. Pure: the caller sleeps.

What is not safe to repeat is never tried again: a POST whose outcome is unknown could happen twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import ApiError, ClientError, ConnectionFailed

_RETRYABLE_STATUS = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `attempts` tries; waits `first_s`, doubled each time, at most `longest_s`."""

    attempts: int = 4
    first_s: float = 0.2
    longest_s: float = 5.0

    def delay_s(self, may_repeat: bool, attempt: int, error: ClientError) -> float | None:
        """Seconds to wait after try number `attempt` (from 1) failed with `error`; None: give up."""
        if attempt >= self.attempts or not may_repeat or not _is_passing(error):
            return None
        asked = error.retry_after_s if isinstance(error, ApiError) else None
        if asked is not None:
            return asked if asked <= self.longest_s else None
        return min(self.first_s * 2.0 ** (attempt - 1), self.longest_s)


def _is_passing(error: ClientError) -> bool:
    if isinstance(error, ApiError):
        return error.status in _RETRYABLE_STATUS
    return isinstance(error, ConnectionFailed)
