"""One request on its way through replicas: its calls, its tally, and its end, which is settled exactly
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog

from api.dispatch import replica
from api.dispatch.fleet import Fleet, Slot, Want
from api.dispatch.replica import ReplicaBroke, ReplicaUnavailable
from api.dispatch.settlement import Account, CallBill, Ending
from api.dispatch.tally import Counts, Tally, total
from api.errors import ColdStartTimeout, ReplicaLost
from common.errors import ContextLengthExceeded, DeadlineExceeded, InvalidInput, Overloaded, PlatformError
from common.wire import Ended, Failed, Finished, FinishReason, Frame, GenerateRequest
from storage.records import RequestStatus

log = structlog.get_logger()

Groups = AsyncGenerator[list[tuple[int, Frame]], None]
_BUFFERED_GROUPS = 64
_CALLERS_FAULT: dict[str, type[InvalidInput]] = {
    "context_length_exceeded": ContextLengthExceeded,
    "invalid_request": InvalidInput,
}


@dataclass(frozen=True, slots=True)
class Patience:
    """Monotonic deadline of the first token, and how long a replica may be silent after that."""

    deadline_s: float
    silence_s: float


@dataclass(slots=True)
class Call:
    """One prompt at a replica. `slot` is where it is, or was last."""

    request: GenerateRequest
    tally: Tally = field(default_factory=Tally)
    slot: Slot | None = None
    held_s: float = 0.0

    @property
    def replica_id(self) -> str | None:
        return None if self.slot is None else self.slot.lease.replica_id


class Generation:
    """The calls of one API request. Iterate `groups()` once; afterwards, whatever happened, `settle()`."""

    def __init__(
        self,
        account: Account,
        requests: Sequence[GenerateRequest],
        fleet: Fleet,
        patience: Patience,
        monotonic: Callable[[], float],
        explain: Callable[[str], Awaitable[str]],
    ) -> None:
        self.account = account
        self.calls = tuple(Call(request) for request in requests)
        self.first_token_s: float | None = None
        self._fleet = fleet
        self._patience = patience
        self._monotonic = monotonic
        self._explain = explain

    @property
    def counts(self) -> Counts:
        """Tokens of all calls so far."""
        return total(call.tally.counts for call in self.calls)

    @property
    def is_placed(self) -> bool:
        """Whether a replica has taken any of it; until then it is held."""
        return any(call.slot is not None for call in self.calls)

    @property
    def held_s(self) -> float:
        return max(call.held_s for call in self.calls)

    @property
    def replica_id(self) -> str | None:
        return self.calls[0].replica_id

    def bills(self) -> tuple[CallBill, ...]:
        return tuple(CallBill(call.request.request_id, call.tally.counts) for call in self.calls)

    def groups(self) -> Groups:
        """Frames with the number of the prompt they answer, in the groups they arrived in.

        Raises: Overloaded, ColdStartTimeout, DeadlineExceeded, ReplicaLost, and what a replica refused with.
        """
        return self._one(0) if len(self.calls) == 1 else self._merged()

    async def _one(self, number: int) -> Groups:
        """Run one call; a replica that fails before the first token is replaced by another."""
        call = self.calls[number]
        excluded: frozenset[str] = frozenset()
        while True:
            call.slot = slot = await self._place(call, excluded)
            try:
                async with aclosing(self._exchange(call, slot)) as groups:
                    async for group in groups:
                        yield [(number, frame) for frame in group]
                return
            except (ReplicaUnavailable, ReplicaBroke) as failure:
                self._fleet.suspect(slot.lease.deployment_id, slot.lease.replica_id)
                log.warning("replica_failed", replica_id=slot.lease.replica_id, reason=str(failure))
                if call.tally.has_tokens:
                    tokens = call.tally.counts.completion_tokens
                    raise ReplicaLost(
                        f"the replica was lost after {tokens} tokens; they are billed"
                    ) from failure
                self._silence_s(call)
                excluded |= {slot.lease.replica_id}
                call.tally = Tally()
            finally:
                slot.release()

    async def _merged(self) -> Groups:
        """Run all calls at once and interleave what they say. The queue is bounded: a slow reader slows them
        down.
        """
        queue: asyncio.Queue[list[tuple[int, Frame]] | None] = asyncio.Queue(_BUFFERED_GROUPS)

        async def pump(number: int) -> None:
            async with aclosing(self._one(number)) as groups:
                async for group in groups:
                    await queue.put(group)
            await queue.put(None)

        tasks = [asyncio.create_task(pump(number)) for number in range(len(self.calls))]
        try:
            left = len(tasks)
            while left:
                group = await _next_or_failure(queue, tasks)
                if group is None:
                    left -= 1
                else:
                    yield group
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _place(self, call: Call, excluded: frozenset[str]) -> Slot:
        request = call.request
        want = Want(
            self.account.deployment_id,
            sequences=request.n,
            tokens=len(request.prompt_ids) + request.n * request.max_tokens,
        )
        try:
            slot = await self._fleet.acquire(want, excluded, self._patience.deadline_s)
        except ColdStartTimeout as error:
            why = await self._explain(want.deployment_id)
            raise ColdStartTimeout(f"{error}{why}", retry_after_s=error.retry_after_s or 5.0) from error
        call.held_s += slot.held_s
        return slot

    async def _exchange(self, call: Call, slot: Slot) -> AsyncGenerator[list[Frame], None]:
        lease = slot.lease
        stream = replica.generate(
            lease.socket_path, lease.secret, call.request, lambda: self._silence_s(call)
        )
        is_ended = False
        async with aclosing(stream) as groups:
            async for group in groups:
                for frame in group:
                    self._take(call, frame)
                    is_ended = is_ended or isinstance(frame, Ended)
                yield group
        if not is_ended:
            raise ReplicaBroke("the replica's stream ended without a last frame")

    def _take(self, call: Call, frame: Frame) -> None:
        if isinstance(frame, Failed):
            raise _failure(frame, call.tally)
        if isinstance(frame, Finished) and frame.reason in (FinishReason.ERROR, FinishReason.ABORT):
            raise ReplicaBroke("the replica gave up the request")
        call.tally.feed(frame)
        if self.first_token_s is None and call.tally.has_tokens:
            self.first_token_s = self._monotonic()

    def _silence_s(self, call: Call) -> float:
        """How long the next frame may take. Before the first token the request's own deadline is the limit.

        Raises: DeadlineExceeded: it has passed.
        """
        if call.tally.has_tokens:
            return self._patience.silence_s
        left_s = self._patience.deadline_s - self._monotonic()
        if left_s <= 0:
            raise DeadlineExceeded(
                "no token was generated before the request's deadline; try a shorter prompt"
            )
        return left_s


def ending_of(error: BaseException | None, http_status: int) -> Ending:
    """How a request that ended with `error` (None: well) is recorded."""
    if error is None:
        return Ending(RequestStatus.SUCCEEDED, http_status)
    code = error.code if isinstance(error, PlatformError) else "server_error"
    return Ending(RequestStatus.FAILED, http_status, code, is_ours=not isinstance(error, InvalidInput))


CLIENT_GONE = Ending(RequestStatus.CANCELLED, 499, "client_gone")


def _failure(frame: Failed, tally: Tally) -> PlatformError:
    """A replica's refusal in the gateway's words; only the caller's own faults are quoted."""
    if frame.retryable and not tally.has_tokens:
        return ReplicaUnavailable(frame.message)
    if frame.code in _CALLERS_FAULT:
        return _CALLERS_FAULT[frame.code](frame.message)
    if frame.code == "queue_full":
        return Overloaded(frame.message)
    log.error("generation_failed", code=frame.code, message=frame.message)
    if frame.code == "replica_failed":
        return ReplicaLost("the replica failed in the middle of this answer; what it had generated is billed")
    return ReplicaLost("the model could not answer this request", code="server_error")


async def _next_or_failure(
    queue: asyncio.Queue[list[tuple[int, Frame]] | None], tasks: Sequence[asyncio.Task[None]]
) -> list[tuple[int, Frame]] | None:
    """The next group, or the first failure of a call: one that failed will put nothing more."""
    if not queue.empty():
        return queue.get_nowait()
    getter = asyncio.ensure_future(queue.get())
    running = [task for task in tasks if not task.done()]
    try:
        while not getter.done():
            for task in tasks:
                if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                    raise error
            await asyncio.wait({getter, *running}, return_when=asyncio.FIRST_COMPLETED)
            running = [task for task in running if not task.done()]
        return getter.result()
    finally:
        if not getter.done():
            getter.cancel()
