"""The front of dispatch: opens a request's account, keeps its reservations alive, and settles it, exactly
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from api.dispatch.fleet import Fleet
from api.dispatch.generation import Generation, Patience
from api.dispatch.settlement import Account, Ending, open_account, renew, settle
from api.dispatch.tally import Counts
from api.metrics import Metrics
from api.store import Store
from common.clock import Clock
from common.wire import GenerateRequest
from storage.deployments import load_deployment

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """How long things may take, in seconds."""

    request_deadline_s: float
    replica_silence_s: float
    reservation_lease_s: float


class Dispatcher:
    """One a gateway. `start` it on its loop; `close` waits until every ended request is settled."""

    def __init__(
        self,
        fleet: Fleet,
        store: Store,
        metrics: Metrics,
        limits: DispatchLimits,
        clock: Clock,
        monotonic: Callable[[], float],
    ) -> None:
        self.fleet = fleet
        self._store = store
        self._metrics = metrics
        self._limits = limits
        self._clock = clock
        self._monotonic = monotonic
        self._open: dict[str, Generation] = {}
        self._settling: dict[str, asyncio.Task[None]] = {}
        self._renewer: asyncio.Task[None] | None = None
        metrics.held.set_function(lambda: fleet.held)
        metrics.in_flight.set_function(lambda: fleet.in_flight)

    async def start(self) -> None:
        self._renewer = asyncio.create_task(self._renew_for_ever(), name="renew reservations")

    async def close(self) -> None:
        if self._renewer is not None:
            self._renewer.cancel()
            with suppress(asyncio.CancelledError):
                await self._renewer
        await asyncio.gather(*self._settling.values(), return_exceptions=True)
        await self.fleet.close()

    async def open(
        self, account: Account, requests: Sequence[GenerateRequest], arrived_s: float
    ) -> Generation:
        """Note the request and set its highest cost aside. What is opened must be settled.

        Raises: SpendCapReached.
        """
        ceilings = [
            (request.request_id, Counts(len(request.prompt_ids), 0, request.n * request.max_tokens))
            for request in requests
        ]
        await self._store.write(open_account, account, ceilings, self._limits.reservation_lease_s)
        patience = Patience(arrived_s + self._limits.request_deadline_s, self._limits.replica_silence_s)
        generation = Generation(account, requests, self.fleet, patience, self._monotonic, self._explain)
        self._open[account.request_id] = generation
        return generation

    async def settle(self, generation: Generation, ending: Ending) -> None:
        """Bill what was generated and close the request. The first ending stands, and nothing interrupts it.

        A database that is away is logged and counted; the scheduler then settles from the last renewal.
        """
        request_id = generation.account.request_id
        if request_id in self._open:
            del self._open[request_id]
            task = asyncio.create_task(self._settle(generation, ending), name=f"settle {request_id}")
            self._settling[request_id] = task
            task.add_done_callback(lambda _: self._settling.pop(request_id, None))
        if request_id in self._settling:
            await asyncio.shield(self._settling[request_id])

    async def _explain(self, deployment_id: str) -> str:
        """Why no replica of a deployment gets ready, as far as the control plane knows."""
        failure = (await self._store.read(load_deployment, deployment_id)).failure
        return f" (the last one failed to start: {failure.message})" if failure else ""

    async def _settle(self, generation: Generation, ending: Ending) -> None:
        account = generation.account
        now_s = self._monotonic()
        first = generation.first_token_s
        try:
            billed = await self._store.write(
                settle,
                account,
                generation.bills(),
                ending,
                self._clock(),
                replica_id=generation.replica_id,
                first_token_at=None if first is None else self._clock() - (now_s - first),
            )
        except Exception:
            self._metrics.settle_failures.inc()
            log.error("settlement_failed", request_id=account.request_id, exc_info=True)
            return
        self._count(account, billed, ending)
        if generation.is_placed and generation.held_s > 0:
            self._metrics.cold_starts.observe(generation.held_s)

    def _count(self, account: Account, billed: Counts, ending: Ending) -> None:
        metrics, model = self._metrics, account.model
        metrics.requests.labels(model, account.endpoint, ending.status.value).inc()
        for kind, tokens in (
            ("prompt", billed.prompt_tokens - billed.cached_tokens),
            ("cached", billed.cached_tokens),
            ("completion", billed.completion_tokens),
        ):
            metrics.billed_tokens.labels(kind, model).inc(tokens)
        metrics.prompt_size.labels(model).observe(billed.prompt_tokens)
        metrics.generation_size.labels(model).observe(billed.completion_tokens)
        if ending.error_code is not None:
            metrics.aborted.labels("client" if ending.http_status == 499 else "error").inc()

    async def _renew_for_ever(self) -> None:
        """Renew every open reservation three times a lease, all in one transaction."""
        while True:
            await asyncio.sleep(self._limits.reservation_lease_s / 3)
            calls = [
                (call.request.request_id, call.replica_id, call.tally.counts)
                for generation in self._open.values()
                for call in generation.calls
            ]
            if not calls:
                continue
            try:
                await self._store.write(renew, calls, self._clock(), self._limits.reservation_lease_s)
            except Exception:
                log.error("renewal_failed", calls=len(calls), exc_info=True)
