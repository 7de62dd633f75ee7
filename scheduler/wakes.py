"""Listens for wakes on a thread of its own and turns each into an event; survives a broker that goes away."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from redis import Redis
from redis.exceptions import RedisError

from common.clock import Clock
from scheduler.events import Woken
from storage import leases

log = structlog.get_logger()

_LOOK_S = 1.0
_RETRY_S = 1.0


class WakeListener:
    """A missed message costs at most one tick: the wake itself is kept in Redis, and ticks read it."""

    def __init__(self, redis: Redis, notify: Callable[[Woken], None], clock: Clock) -> None:
        self._redis = redis
        self._notify = notify
        self._clock = clock
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="wakes", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Return when the thread has ended."""
        self._closed.set()
        self._thread.join(2 * _LOOK_S + _RETRY_S)

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen_until_broken()
            except (RedisError, OSError) as error:
                log.warning("wake_listener_interrupted", error=str(error))
                self._closed.wait(_RETRY_S)

    def _listen_until_broken(self) -> None:
        with leases.watch(self._redis) as changes:
            while not self._closed.is_set():
                change = changes.next(_LOOK_S)
                if change is not None and change.kind == "wake":
                    self._notify(Woken(change.deployment_id, self._clock()))
