"""Keeps a claim alive from a thread of its own, and says when it is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

import structlog

from common.clock import Clock

log = structlog.get_logger()

Renew = Callable[[int | None], bool]
"""Extends the lease, noting the resident bytes of the compile; False when the claim is no longer ours."""

_BEATS_PER_LEASE = 5


class Heartbeat:
    """Renews every fifth of the lease while entered.

    The claim counts as lost when `renew` says so (cancelled, taken over), or when no renewal succeeded for a
    whole lease: by then another worker may have started.
    """

    def __init__(self, renew: Renew, lease_s: float, clock: Clock) -> None:
        self._renew = renew
        self._lease_s = lease_s
        self._clock = clock
        self._renewed_at = clock()
        self._rss_bytes: int | None = None
        self._lost = threading.Event()
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    @property
    def is_lost(self) -> bool:
        return self._lost.is_set()

    def note_memory(self, rss_bytes: int) -> None:
        """Pass this on with the next renewal, so that the job's row knows the peak if we die."""
        self._rss_bytes = max(rss_bytes, self._rss_bytes or 0)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join(self._lease_s)

    def _beat(self) -> None:
        while not self._left.wait(self._lease_s / _BEATS_PER_LEASE):
            self.beat()
            if self.is_lost:
                return

    def beat(self) -> None:
        """One renewal; a failing one is logged and tried again at the next beat."""
        try:
            is_ours = self._renew(self._rss_bytes)
        except Exception:  # the edge of this thread's loop: the database may come back within the lease
            log.warning("lease_renewal_failed", exc_info=True)
            is_ours = self._clock() - self._renewed_at < self._lease_s
        else:
            self._renewed_at = self._clock()
        if not is_ours:
            self._lost.set()
