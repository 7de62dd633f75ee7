"""What a replica is to its callers: a state, figures, and requests that are taken or refused."""

from __future__ import annotations

from collections.abc import Callable

from batching.engine import EngineStats
from batching.replica.book import RequestBook
from batching.replica.driver import EngineDriver
from batching.replica.phases import Phases
from batching.replica.settings import ReplicaSettings
from batching.replica.stream import FrameStream
from common.errors import Overloaded
from common.wire import GenerateRequest, ReplicaState, ReplicaStats


class ReplicaService:
    """Belongs to the server's thread. Starting until it is given its driver; draining is for good."""

    def __init__(self, settings: ReplicaSettings, book: RequestBook, phases: Phases) -> None:
        self._settings = settings
        self._book = book
        self._phases = phases
        self._driver: EngineDriver | None = None
        self._state = ReplicaState.STARTING

    @property
    def state(self) -> ReplicaState:
        return self._state

    def become_ready(self, driver: EngineDriver) -> None:
        self._driver = driver
        if self._state is ReplicaState.STARTING:
            self._state = ReplicaState.READY
        self._book.restart_idle()

    def drain(self) -> None:
        """Take no more requests, and send away those that no work was done for."""
        if self._state is not ReplicaState.DRAINING:
            self._state = ReplicaState.DRAINING
            if self._driver is not None:
                self._driver.refuse_waiting()

    def submit(self, request: GenerateRequest, wake: Callable[[], None]) -> FrameStream:
        """Raises: `Overloaded` when too many arrive at once."""
        if self._driver is None:
            raise Overloaded("this replica is not ready yet")
        return self._driver.submit(request, wake)

    def abort(self, request_id: str, stream: FrameStream) -> None:
        if self._driver is not None:
            self._driver.abort(request_id, stream)

    def acknowledge(self, request_ids: list[str]) -> None:
        self._book.acknowledge(request_ids)

    def stats(self) -> ReplicaStats:
        engine, arriving = self._figures()
        reported_open, reported_ended = self._book.reports()
        return ReplicaStats(
            replica_id=self._settings.replica_id,
            state=self._state,
            running=engine.running,
            waiting=engine.waiting + arriving,
            max_sequences=self._settings.max_sequences,
            kv_blocks_total=engine.kv_blocks_total,
            kv_blocks_used=engine.kv_blocks_used,
            idle_s=round(self._book.idle_s(), 4),
            steps=engine.steps,
            prompt_tokens=engine.prompt_tokens,
            generation_tokens=engine.generation_tokens,
            preemptions=engine.preemptions,
            aborts=engine.aborts,
            open=reported_open,
            ended=reported_ended,
            phases_s=self._phases.as_tuple(),
        )

    def _figures(self) -> tuple[EngineStats, int]:
        if self._driver is None:
            return EngineStats(0, 0, self._settings.kv_blocks, 0, 0, 0, 0, 0, 0), 0
        return self._driver.latest, self._driver.waiting_commands
