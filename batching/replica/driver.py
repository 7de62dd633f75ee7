"""The one thread that owns the engine, and the bounded ways in and out of it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from batching.engine import Engine, EngineStats, Event
from batching.replica.book import RequestBook
from batching.replica.program import HostTime
from batching.replica.stream import FrameStream
from common.errors import Overloaded, PlatformError
from common.wire import Ended, Failed, Frame, GenerateRequest, Started

log = logging.getLogger(__name__)

DRAINING = Failed("draining", "this replica takes no more requests", retryable=True)
_SLOW_READER = Failed("slow_reader", "the reader fell too far behind, and the request was aborted")


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """`inbox` bounds commands waiting for the engine's thread, `buffered_tokens` what waits for a reader."""

    inbox: int
    buffered_tokens: int


@dataclass(slots=True)
class _Open:
    """A request in service: where its frames go, when it came, and whether work on it began."""

    stream: FrameStream
    received_s: float
    is_started: bool = False


class EngineDriver:
    """Runs the engine while there is work. `submit`, `abort` and the like may be called from any thread.

    `notify` is called on the engine's thread, once a step, with the streams that have something new.
    """

    def __init__(
        self,
        engine: Engine,
        book: RequestBook,
        host_time: HostTime,
        limits: DriverLimits,
        *,
        clock: Callable[[], float],
        random_seed: Callable[[], int],
        notify: Callable[[list[FrameStream]], None],
    ) -> None:
        self._engine = engine
        self._book = book
        self._host_time = host_time
        self._limits = limits
        self._clock = clock
        self._random_seed = random_seed
        self._notify = notify
        self._open: dict[str, _Open] = {}
        self._touched: dict[int, FrameStream] = {}
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._step_began_s: float | None = None
        self.latest: EngineStats = engine.stats()

    def submit(self, request: GenerateRequest, wake: Callable[[], None]) -> FrameStream:
        """Hand a request to the engine; all that happens to it, a refusal too, comes out of the stream.

        Raises: `Overloaded` when the engine's thread has not taken in the last ones yet.
        """
        stream, received_s = FrameStream(self._limits.buffered_tokens, wake), self._clock()
        with self._wake:
            if len(self._commands) >= self._limits.inbox:
                raise Overloaded("too many requests arrive at once; retry later", code="queue_full")
            self._commands.append(lambda: self._submit(request, stream, received_s))
            self._wake.notify()
        return stream

    def abort(self, request_id: str, stream: FrameStream) -> None:
        """End the request of a reader that is gone. Harmless when it is over."""
        self._command(lambda: self._abort_of(request_id, stream))

    def refuse_waiting(self) -> None:
        """Send away every request that no work was done for, so that another replica takes it."""
        self._command(self._refuse_waiting)

    def fail_all(self, code: str, message: str) -> None:
        """End every open request with an error; retryable where nothing was generated."""
        self._command(lambda: self._fail_all(code, message))

    def stop(self) -> None:
        """Make `run` return once all commands given so far are carried out."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()

    @property
    def waiting_commands(self) -> int:
        return len(self._commands)

    @property
    def is_idle(self) -> bool:
        """Whether no request is open and none is on its way in."""
        return not self._open and not self._commands

    def step_age_s(self) -> float | None:
        """How long the current step has been running; None between steps."""
        began_s = self._step_began_s
        return None if began_s is None else self._clock() - began_s

    def run(self) -> None:
        """Serve until `stop`. If a step raises, every request fails first; then the error goes on."""
        try:
            while self._take_commands():
                if self._engine.has_work:
                    self._step()
        except Exception:
            self._fail_all("replica_failed", "the replica failed and is being replaced")
            self._announce()
            raise

    def _command(self, command: Callable[[], None]) -> None:
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def _take_commands(self) -> bool:
        """Carry out what is asked for, waiting for it when there is nothing else to do; false to stop."""
        with self._wake:
            if not self._engine.has_work and not self._commands and not self._is_stopping:
                self._host_time.pause()
                self._wake.wait_for(lambda: bool(self._commands) or self._is_stopping)
        while self._commands:
            self._commands[0]()
            self._commands.popleft()
        self._announce()
        return not self._is_stopping

    def _step(self) -> None:
        self._step_began_s = self._clock()
        events = self._engine.step()
        self._step_began_s = None
        self._deliver(events)
        self._announce()

    def _announce(self) -> None:
        """Publish the figures and wake the readers: one call to the server a step, however many streams."""
        self.latest = self._engine.stats()
        if self._touched:
            touched, self._touched = list(self._touched.values()), {}
            self._notify(touched)

    def _submit(self, request: GenerateRequest, stream: FrameStream, received_s: float) -> None:
        if request.request_id in self._open:
            refusal = Failed("duplicate_request", f"request {request.request_id!r} is being served already")
            self._put(stream, [refusal])
            return
        try:
            self._engine.submit(request, random_seed=self._random_seed())
        except PlatformError as error:
            self._put(stream, [Failed(error.code, str(error))])
            return
        self._book.begin(request)
        self._open[request.request_id] = _Open(stream, received_s)

    def _abort_of(self, request_id: str, stream: FrameStream) -> None:
        entry = self._open.get(request_id)
        if entry is not None and entry.stream is stream:
            self._abort(request_id, Failed("aborted", "the request was aborted"))

    def _abort(self, request_id: str, last: Failed) -> None:
        """End a request before its time; its reader, if there is one, sees `last`."""
        entry = self._open.pop(request_id)
        for event in self._engine.abort(request_id):
            self._book.note(request_id, event.frame)
        counts = self._book.end(request_id)
        self._put(entry.stream, [last])
        facts = {"request_id": request_id, "reason": last.code, "tokens": counts.completion_tokens}
        log.info("request_aborted", extra={"facts": facts})

    def _refuse_waiting(self) -> None:
        for request_id in [i for i, entry in self._open.items() if not entry.is_started]:
            self._abort(request_id, DRAINING)

    def _fail_all(self, code: str, message: str) -> None:
        for request_id in list(self._open):
            is_fresh = not self._book.has_generated(request_id)
            self._abort(request_id, Failed(code, message, retryable=is_fresh))

    def _deliver(self, events: Iterable[Event]) -> None:
        """Count each event, and pass it on to its reader."""
        frames: dict[str, list[Frame]] = {}
        for event in events:
            entry = self._open[event.request_id]
            frame = event.frame
            if isinstance(frame, Started):
                entry.is_started = True
                frame = replace(frame, queue_s=round(self._clock() - entry.received_s, 6))
            self._book.note(event.request_id, frame)
            frames.setdefault(event.request_id, []).append(frame)
        for request_id, mine in frames.items():
            self._hand_over(request_id, mine)

    def _hand_over(self, request_id: str, frames: list[Frame]) -> None:
        entry = self._open[request_id]
        if isinstance(frames[-1], Ended | Failed):
            del self._open[request_id]
            self._book.end(request_id)
            self._put(entry.stream, frames)
        elif not self._put(entry.stream, frames):
            self._abort(request_id, _SLOW_READER)

    def _put(self, stream: FrameStream, frames: list[Frame]) -> bool:
        self._touched[id(stream)] = stream
        return stream.put(frames)
