"""Who serves the next request: leases minus our own outstanding work; at zero or full, requests are held in
order.

Held requests wake the deployment, are bounded, wait no longer than their deadline or than there is hope, and
are released by free slots, first come first served: never all to the first replica that gets ready.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from api.dispatch.leases import Leases, LeasesUnavailable, ReplicaLease
from api.errors import ColdStartTimeout
from common.errors import Overloaded, PlatformError
from common.wire import ReplicaState
from scheduler.routing import Candidate, choose

log = structlog.get_logger()

_FRESH_S = 0.25
_NUDGE_S = 1.0
_POLL_S = 0.25
_SUSPECT_S = 3.0


@dataclass(frozen=True, slots=True)
class Want:
    """A request's need: sequences and tokens (prompt plus allowed answer), and a digest of its prefix."""

    deployment_id: str
    sequences: int
    tokens: int
    affinity: str | None = None


@dataclass(slots=True)
class _Load:
    """What this gateway has at one replica. `peak` is the most since the replica's last new report."""

    sequences: int = 0
    tokens: int = 0
    peak: int = 0
    others: int = 0
    report: tuple[int, int] | None = None


@dataclass(slots=True)
class _Waiter:
    want: Want
    excluded: frozenset[str]
    granted: asyncio.Future[ReplicaLease]


@dataclass(slots=True)
class _Line:
    """One deployment as this gateway sees it."""

    leases: tuple[ReplicaLease, ...] = ()
    read_at_s: float = float("-inf")
    loads: dict[str, _Load] = field(default_factory=dict)
    suspects: dict[str, float] = field(default_factory=dict)
    waiters: deque[_Waiter] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    pump: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Slot:
    """A place at a replica; give it back once. `held_s` is how long it was waited for."""

    lease: ReplicaLease
    held_s: float
    _give_back: Callable[[], None]
    _is_held: bool = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._give_back()


Outlook = Callable[[str], Awaitable[PlatformError | None]]
"""Why waiting for a deployment's replica is in vain, by its id; None while there is hope."""


class Fleet:
    """Places for requests. One per gateway; all of it runs on the event loop."""

    def __init__(
        self,
        leases: Leases,
        max_held: int,
        monotonic: Callable[[], float],
        outlook: Outlook,
        hopeless_after_s: float,
    ) -> None:
        self._leases = leases
        self._outlook = outlook
        self._hopeless_after_s = hopeless_after_s
        self._max_held = max_held
        self._monotonic = monotonic
        self._lines: dict[str, _Line] = {}
        self.held = 0
        self.in_flight = 0
        leases.listen(self._heard)

    async def acquire(self, want: Want, excluded: frozenset[str], deadline_s: float) -> Slot:
        """A slot at a ready replica, now or before `deadline_s` (monotonic).

        Raises: Overloaded: too many requests are held already; ColdStartTimeout; what the outlook says.
        """
        line = self._lines.setdefault(want.deployment_id, _Line())
        if not line.waiters:
            await self._refresh(line, want.deployment_id, _FRESH_S)
            lease = self._place(line, want, excluded)
            if lease is not None:
                return self._slot(line, lease, want, 0.0)
        return await self._hold(line, want, excluded, deadline_s)

    def suspect(self, deployment_id: str, replica_id: str) -> None:
        """Don't send anything to a replica that just failed, until its next leases had time to tell."""
        line = self._lines.setdefault(deployment_id, _Line())
        line.suspects[replica_id] = self._monotonic() + _SUSPECT_S
        line.read_at_s = float("-inf")

    async def close(self) -> None:
        for line in self._lines.values():
            if line.pump is not None:
                line.pump.cancel()
                with suppress(asyncio.CancelledError):
                    await line.pump

    async def _hold(self, line: _Line, want: Want, excluded: frozenset[str], deadline_s: float) -> Slot:
        if self.held >= self._max_held:
            raise Overloaded(f"{self.held} requests are waiting for a replica already", retry_after_s=5.0)
        since_s = self._monotonic()
        waiter = _Waiter(want, excluded, asyncio.get_running_loop().create_future())
        line.waiters.append(waiter)
        self.held += 1
        self._start_pump(line, want.deployment_id)
        try:
            async with asyncio.timeout(max(deadline_s - since_s, 0.0)):
                lease = await waiter.granted
        except BaseException as error:
            self._leave(line, waiter)
            if isinstance(error, TimeoutError):
                raise ColdStartTimeout(
                    f"no replica was ready within {self._monotonic() - since_s:.0f} s; try again",
                    retry_after_s=5.0,
                ) from error
            raise
        finally:
            self.held -= 1
        return self._granted(line, lease, want, self._monotonic() - since_s)

    def _heard(self, deployment_id: str) -> None:
        line = self._lines.get(deployment_id)
        if line is not None:
            line.read_at_s = float("-inf")
            line.news.set()

    def _leave(self, line: _Line, waiter: _Waiter) -> None:
        """Stop waiting; a place that was granted in the same instant goes to the next in line."""
        with suppress(ValueError):
            line.waiters.remove(waiter)
        is_settled = waiter.granted.done() and not waiter.granted.cancelled()
        if is_settled and waiter.granted.exception() is None:
            self._take_back(line, waiter.granted.result().replica_id, waiter.want)

    def _start_pump(self, line: _Line, deployment_id: str) -> None:
        if line.pump is None or line.pump.done():
            line.pump = asyncio.create_task(self._pump(line, deployment_id), name=f"hold {deployment_id}")

    async def _pump(self, line: _Line, deployment_id: str) -> None:
        """Give places to those who wait, until nobody does; runs only while somebody waits."""
        nudged_s = float("-inf")
        hopeless_since_s: float | None = None
        while True:
            line.news.clear()
            await self._refresh(line, deployment_id, 0.0)
            self._grant(line)
            if not line.waiters:
                await self._say_held(deployment_id, 0)
                if not line.waiters:
                    return
            if self._monotonic() - nudged_s >= _NUDGE_S:
                nudged_s = self._monotonic()
                await self._say_held(deployment_id, len(line.waiters))
                hopeless_since_s = await self._look_ahead(line, deployment_id, hopeless_since_s)
            with suppress(TimeoutError):
                await asyncio.wait_for(line.news.wait(), _POLL_S)

    async def _look_ahead(self, line: _Line, deployment_id: str, since_s: float | None) -> float | None:
        """Send everybody away once waiting has been in vain for a while; since when it has been so."""
        try:
            reason = await self._outlook(deployment_id)
        except Exception:
            log.warning("outlook_unavailable", deployment_id=deployment_id, exc_info=True)
            return None
        if reason is None:
            return None
        since_s = self._monotonic() if since_s is None else since_s
        if self._monotonic() - since_s >= self._hopeless_after_s:
            for waiter in line.waiters:
                if not waiter.granted.done():
                    waiter.granted.set_exception(reason)
            line.waiters.clear()
        return since_s

    async def _say_held(self, deployment_id: str, count: int) -> None:
        try:
            await self._leases.report_held(deployment_id, count)
            if count:
                await self._leases.wake(deployment_id)
        except LeasesUnavailable as error:
            log.warning("registry_unavailable", deployment_id=deployment_id, reason=str(error))

    def _grant(self, line: _Line) -> None:
        """First come first served; only those who may not use what is free are passed over."""
        for waiter in tuple(line.waiters):
            lease = self._place(line, waiter.want, waiter.excluded)
            if lease is None and not waiter.excluded:
                return
            if lease is not None:
                line.waiters.remove(waiter)
                if not waiter.granted.done():
                    self._count(line, lease.replica_id, waiter.want)
                    waiter.granted.set_result(lease)

    async def _refresh(self, line: _Line, deployment_id: str, max_age_s: float) -> None:
        if self._monotonic() - line.read_at_s < max_age_s:
            return
        try:
            found = await self._leases.live(deployment_id)
        except LeasesUnavailable as error:
            log.warning("registry_unavailable", deployment_id=deployment_id, reason=str(error))
            return
        line.read_at_s = self._monotonic()
        line.leases = tuple(lease for lease in found if lease.state is ReplicaState.READY)
        alive = {lease.replica_id for lease in line.leases}
        line.suspects = {k: v for k, v in line.suspects.items() if k in alive and v > line.read_at_s}
        line.loads = {k: v for k, v in line.loads.items() if k in alive or v.sequences}
        for lease in line.leases:
            _observe(line.loads.setdefault(lease.replica_id, _Load()), lease)

    def _place(self, line: _Line, want: Want, excluded: frozenset[str]) -> ReplicaLease | None:
        candidates = [_candidate(lease, line.loads[lease.replica_id]) for lease in line.leases]
        chosen = choose(
            candidates,
            sequences=want.sequences,
            affinity=want.affinity,
            excluded=excluded | line.suspects.keys(),
        )
        return next((lease for lease in line.leases if lease.replica_id == chosen), None)

    def _slot(self, line: _Line, lease: ReplicaLease, want: Want, held_s: float) -> Slot:
        self._count(line, lease.replica_id, want)
        return self._granted(line, lease, want, held_s)

    def _granted(self, line: _Line, lease: ReplicaLease, want: Want, held_s: float) -> Slot:
        return Slot(lease, held_s, lambda: self._take_back(line, lease.replica_id, want))

    def _count(self, line: _Line, replica_id: str, want: Want) -> None:
        load = line.loads.setdefault(replica_id, _Load())
        load.sequences += want.sequences
        load.tokens += want.tokens
        load.peak = max(load.peak, load.sequences)
        self.in_flight += 1

    def _take_back(self, line: _Line, replica_id: str, want: Want) -> None:
        load = line.loads.setdefault(replica_id, _Load())
        load.sequences -= want.sequences
        load.tokens -= want.tokens
        self.in_flight -= 1
        line.news.set()


def _observe(load: _Load, lease: ReplicaLease) -> None:
    """Tell our own work in a report from that of other gateways.

    A report may be older than our last few calls and ends, so it is compared with the most we had there since
    the report before: what it counts beyond that belongs to others.
    """
    report = (lease.running, lease.waiting)
    if report != load.report:
        load.report = report
        load.others = max(lease.running + lease.waiting - load.peak, 0)
        load.peak = load.sequences


def _candidate(lease: ReplicaLease, load: _Load) -> Candidate:
    return Candidate(
        replica_id=lease.replica_id,
        max_sequences=lease.max_sequences,
        reported_running=load.others + load.sequences,
        reported_waiting=0,
        outstanding_sequences=load.sequences,
        outstanding_tokens=load.tokens,
    )
