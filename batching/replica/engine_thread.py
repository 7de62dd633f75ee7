"""The thread that loads the model, proves that it runs, and drives the engine until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from batching.engine import Engine, EngineConfig
from batching.replica.book import RequestBook
from batching.replica.driver import DriverLimits, EngineDriver
from batching.replica.loading import Load
from batching.replica.phases import Phases
from batching.replica.program import SampledProgram
from batching.replica.settings import ReplicaSettings
from batching.replica.stream import FrameStream
from common.errors import PlatformError


class WarmUpFailed(PlatformError):
    """The first forward pass gave logits that are not numbers: this artifact must not serve."""

    code = "warm_up_failed"


class EngineThread:
    """Make it on the server's loop. `loaded` has the driver once a forward pass succeeded, or why none did;
    `ended` is done when the driver was stopped, or has what broke it."""

    def __init__(self, settings: ReplicaSettings, load: Load, phases: Phases, book: RequestBook) -> None:
        self._settings = settings
        self._load = load
        self._phases = phases
        self._book = book
        self._loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[EngineDriver] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def start(self) -> None:
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def _run(self) -> None:
        try:
            driver, program = self._prepare()
        except Exception as error:
            self._post(self.loaded.set_exception, error)
            return
        self._post(self.loaded.set_result, driver)
        try:
            with contextlib.closing(program):
                driver.run()
        except Exception as error:
            self._post(self.ended.set_exception, error)
        else:
            self._post(self.ended.set_result, None)

    def _prepare(self) -> tuple[EngineDriver, SampledProgram]:
        settings = self._settings
        with self._phases.measure("map"):
            model = self._load(settings.source)
        program = SampledProgram(model.program, time.perf_counter)
        config = EngineConfig(
            kv_blocks=settings.kv_blocks,
            max_sequences=settings.max_sequences,
            max_batched_tokens=settings.max_batched_tokens,
            max_waiting=settings.max_waiting,
        )
        engine = Engine(config, program, model.detokenizer)
        with self._phases.measure("warmup"):
            if not program.warm_up():
                raise WarmUpFailed("the first forward pass gave logits that are not finite")
        gc.collect()
        gc.freeze()
        driver = EngineDriver(
            engine,
            self._book,
            program.host_time,
            DriverLimits(settings.max_waiting, settings.max_buffered_tokens),
            clock=time.monotonic,
            random_seed=lambda: secrets.randbits(63),
            notify=lambda streams: self._post(_wake_all, streams),
        )
        return driver, program

    def _post(self, call: Callable[..., object], argument: Any) -> None:
        """Have the server's thread make a call; when it is gone already, nobody waits for it."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, argument)


def _wake_all(streams: Iterable[FrameStream]) -> None:
    for stream in streams:
        stream.wake()
