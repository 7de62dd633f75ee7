"""The registry of running replicas as the gateway sees it, and the two things it tells the control plane.

Leases are what replicas last reported. They can be lost at any time: a restart of Redis costs one tick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import structlog
from redis.exceptions import RedisError

from common.clock import Clock
from common.errors import Overloaded
from storage import async_leases
from storage.lease_keys import ReplicaLease

__all__ = ["Leases", "RedisLeases", "ReplicaLease"]

log = structlog.get_logger()

HELD_TTL_S = 10.0
_RETRY_S = 0.5
_IDLE_S = 30.0
_FAILURES = (RedisError, OSError, TimeoutError)


class LeasesUnavailable(Overloaded):
    """The registry does not answer. What was read last stays good: replicas don't depend on it."""

    code = "registry_unavailable"


class Leases(Protocol):
    """One a gateway. Every call raises `LeasesUnavailable` when the registry does not answer."""

    async def start(self) -> None:
        """Begin to follow changes, on the running loop."""
        ...

    async def close(self) -> None: ...

    async def live(self, deployment_id: str) -> tuple[ReplicaLease, ...]:
        """Replicas of a deployment whose lease has not expired, in any state."""
        ...

    async def wake(self, deployment_id: str) -> None:
        """Ask for an immediate look at a deployment: somebody wants it, or it was changed."""
        ...

    async def report_held(self, deployment_id: str, count: int) -> None:
        """How many requests wait here for a replica of a deployment; forgotten when not repeated."""
        ...

    def listen(self, on_change: Callable[[str], None]) -> None:
        """Call `on_change(deployment_id)` whenever a lease of it was written or dropped."""
        ...

    async def is_up(self) -> bool:
        """Whether the registry answers."""
        ...


class RedisLeases:
    """Leases in Redis. `start` it on the loop that uses it; it reconnects by itself."""

    def __init__(self, url: str, gateway_id: str, clock: Clock) -> None:
        self._redis = async_leases.connect(url)
        self._gateway_id = gateway_id
        self._clock = clock
        self._listeners: list[Callable[[str], None]] = []
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._reader = asyncio.create_task(self._read(), name="lease changes")

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        await self._redis.aclose()

    async def live(self, deployment_id: str) -> tuple[ReplicaLease, ...]:
        with _translated():
            return await async_leases.live_replicas(self._redis, deployment_id)

    async def wake(self, deployment_id: str) -> None:
        with _translated():
            await async_leases.wake(self._redis, deployment_id, self._clock())

    async def report_held(self, deployment_id: str, count: int) -> None:
        with _translated():
            await async_leases.set_held_requests(
                self._redis, self._gateway_id, deployment_id, count, HELD_TTL_S, self._clock()
            )

    def listen(self, on_change: Callable[[str], None]) -> None:
        self._listeners.append(on_change)

    async def is_up(self) -> bool:
        try:
            return bool(await self._redis.ping())
        except _FAILURES:
            return False

    async def _read(self) -> None:
        """Follow the change channel for as long as the gateway runs."""
        while True:
            try:
                async with async_leases.watch(self._redis) as changes:
                    while True:
                        change = await changes.next(_IDLE_S)
                        if change is not None and change.kind == "lease":
                            self._tell(change.deployment_id)
            except _FAILURES as error:
                log.warning("lease_changes_lost", reason=str(error))
                await asyncio.sleep(_RETRY_S)

    def _tell(self, deployment_id: str) -> None:
        for listener in self._listeners:
            listener(deployment_id)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except _FAILURES as error:
        raise LeasesUnavailable("the registry of replicas does not answer", retry_after_s=2.0) from error
