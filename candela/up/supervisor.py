"""Keeps the platform's processes running: starts them, restarts one that ends, stops them in order.

One thread; sleeps on signals. Which services, and when to restart, is decided in `specs` and `policy`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby

import structlog

from .errors import StartFailed
from .policy import RestartPolicy
from .service import Running, Service
from .signals import SignalWaiter
from .state import ChildState

log = structlog.get_logger()


@dataclass(slots=True)
class _Slot:
    """A service's place: the process in it, or the time at which the next one is due."""

    service: Service
    running: Running
    started_at: float
    failures: int = 0
    restarts: int = 0
    due_at: float | None = None


class Supervisor:
    """Use: `add` each service, `wait_until` ready, `run` until it returns, and always `stop`.

    `on_change` is told after every start.
    """

    def __init__(
        self,
        signals: SignalWaiter,
        on_change: Callable[[tuple[ChildState, ...]], None],
        policy: RestartPolicy | None = None,
    ) -> None:
        self._signals, self._on_change = signals, on_change
        self._policy = policy or RestartPolicy()
        self._slots: list[_Slot] = []

    def add(self, service: Service) -> None:
        self._slots.append(_Slot(service, self._spawn(service), time.monotonic()))
        self._tell()

    def wait_until(self, is_ready: Callable[[], bool], timeout_s: float) -> bool:
        """Wait for the first readiness. Until then, a process that ends means that starting failed.

        Returns:
            False when a stop signal came first.

        Raises:
            StartFailed: a process ended, or the time is up; carries the end of its log.
        """
        deadline = time.monotonic() + timeout_s
        while not is_ready():
            for slot in self._slots:
                if slot.running.exit_code is not None:
                    ended = f"{slot.service.name} ended with {slot.running.exit_code} while starting"
                    raise StartFailed(f"{ended}; {slot.running.last_words()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"the gateway did not answer within {timeout_s:g} s; see the logs")
            if self._signals.wait(0.03):
                return False
        return True

    def run(self) -> None:
        """Watch until a stop signal comes."""
        stop = False
        while not stop:
            now = time.monotonic()
            for slot in self._slots:
                self._tend(slot, now)
            due = [slot.due_at for slot in self._slots if slot.due_at is not None]
            stop = self._signals.wait(min(due) - time.monotonic() if due else 5.0)

    def stop(self) -> None:
        """Stop rank by rank, those of one rank together; a further stop signal kills what is left at once."""
        in_order = sorted(self._slots, key=lambda slot: slot.service.stop_rank)
        hurry = False
        for _, rank in groupby(in_order, key=lambda slot: slot.service.stop_rank):
            hurry = self._stop_rank(list(rank), hurry)
        self._slots.clear()

    def _tend(self, slot: _Slot, now: float) -> None:
        if slot.due_at is not None:
            if now >= slot.due_at:
                self._restart(slot, now)
            return
        code = slot.running.exit_code
        if code is not None:
            slot.running.kill()
            self._schedule_restart(slot, now)
            log.warning("process_ended", name=slot.service.name, exit_code=code, failures=slot.failures)

    def _restart(self, slot: _Slot, now: float) -> None:
        try:
            slot.running = self._spawn(slot.service)
        except StartFailed:
            log.exception("process_not_started", name=slot.service.name)
            self._schedule_restart(slot, now)
            return
        slot.started_at, slot.due_at = now, None
        slot.restarts += 1
        self._tell()

    def _schedule_restart(self, slot: _Slot, now: float) -> None:
        slot.failures = self._policy.failures_after(slot.failures, now - slot.started_at)
        slot.due_at = now + self._policy.delay_s(slot.failures)

    def _stop_rank(self, slots: list[_Slot], hurry: bool) -> bool:
        began = time.monotonic()
        for slot in slots:
            slot.running.terminate()
        waiting = [slot for slot in slots if slot.running.exit_code is None]
        while waiting and not hurry:
            hurry = self._signals.wait(0.05)
            waited_s = time.monotonic() - began
            waiting = [
                s for s in waiting if s.running.exit_code is None and waited_s < s.service.stop_grace_s
            ]
        for slot in slots:
            if slot.running.exit_code is None:
                log.warning("process_killed", name=slot.service.name)
            slot.running.kill()
        return hurry

    def _spawn(self, service: Service) -> Running:
        running = service.spawn()
        log.info("process_started", name=service.name, pid=running.identity.pid)
        return running

    def _tell(self) -> None:
        self._on_change(
            tuple(ChildState(s.service.name, s.running.identity, s.restarts) for s in self._slots)
        )
