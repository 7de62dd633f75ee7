"""A replica's life: load, warm up, announce, serve, drain, stop. The server's thread is the main one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn

from batching.replica.app import ReplicaApp
from batching.replica.book import RequestBook
from batching.replica.driver import EngineDriver
from batching.replica.engine_thread import EngineThread
from batching.replica.loading import Load
from batching.replica.phases import Phases
from batching.replica.service import ReplicaService
from batching.replica.settings import ReplicaSettings
from batching.replica.watchdog import start_watchdog
from common.errors import PlatformError
from common.wire import StartFailed

log = logging.getLogger(__name__)

_POLL_S = 0.02
_FLUSH_S = 5
_BACKLOG = 1024


class ReplicaProcess:
    """Runs one replica in this process."""

    def __init__(self, settings: ReplicaSettings, load: Load, phases: Phases) -> None:
        self._settings = settings
        self._load = load
        self._phases = phases
        self._book = RequestBook(time.monotonic)
        self._service = ReplicaService(settings, self._book, phases)
        self._is_over = threading.Event()

    async def run(self) -> int:
        """Serve until SIGTERM or a failure; the exit code."""
        loop = asyncio.get_running_loop()
        told_to_stop = asyncio.Event()
        engine = EngineThread(self._settings, self._load, self._phases, self._book)
        engine.start()
        app = ReplicaApp(self._service, self._settings.secret, self._settings.send_timeout_s)
        server = _Server(app, lambda: loop.call_soon_threadsafe(told_to_stop.set))
        with _listening(self._settings.socket) as listener:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(server.serve(sockets=[listener]))
                stop = tasks.create_task(told_to_stop.wait())
                await server.is_up.wait()
                code = await self._live(engine, stop)
                stop.cancel()
                server.should_exit = True
        self._is_over.set()
        return code

    async def _live(self, engine: EngineThread, stop: asyncio.Future[Any]) -> int:
        await _first_of(engine.loaded, stop)
        if not engine.loaded.done():
            return 0
        if engine.loaded.exception() is not None:
            log.error("replica_start_failed", exc_info=engine.loaded.exception())
            self._say_why(engine.loaded.exception())
            return 1
        driver = engine.loaded.result()
        self._service.become_ready(driver)
        start_watchdog(driver.step_age_s, self._settings.step_timeout_s, self._is_over)
        self._write_ready(self._service.stats().to_json())
        log.info("replica_ready", extra={"facts": {"phases_s": dict(self._phases.as_tuple())}})
        await _first_of(engine.ended, stop)
        if engine.ended.done():
            log.critical("engine_failed", exc_info=engine.ended.exception())
            return 1
        await self._drain(driver, engine.ended)
        return 0

    def _say_why(self, error: BaseException | None) -> None:
        """Tell the launcher a failure that has a code; others it finds in the log."""
        if isinstance(error, PlatformError):
            self._write_ready(StartFailed(error.code, str(error)).to_json())

    def _write_ready(self, line: str) -> None:
        """Write the one line of the ready pipe; a launcher that does not read it any more changes nothing."""
        with contextlib.suppress(OSError), open(self._settings.ready_fd, "w") as ready:
            ready.write(line + "\n")

    async def _drain(self, driver: EngineDriver, ended: asyncio.Future[None]) -> None:
        """Finish what runs, fail what does not finish in time, stop the engine."""
        self._service.drain()
        deadline_s = time.monotonic() + self._settings.drain_s
        while not driver.is_idle and not ended.done() and time.monotonic() < deadline_s:
            await asyncio.sleep(_POLL_S)
        driver.fail_all("replica_stopping", "the replica had to stop before the request was done")
        driver.stop()
        await asyncio.wait({ended}, timeout=_FLUSH_S)
        log.info("replica_drained", extra={"facts": {"is_clean": ended.done()}})


class _Server(uvicorn.Server):
    """uvicorn, told not to exit by itself on a signal: the replica drains first."""

    def __init__(self, app: ReplicaApp, on_signal: Callable[[], object]) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_FLUSH_S,
        )
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._on_signal = on_signal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_signal()


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """A Unix socket that only this user can reach; its file goes when the replica does."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    try:
        yield listener
    finally:
        listener.close()
        path.unlink(missing_ok=True)
