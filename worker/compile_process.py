"""Runs a compile in a child process and watches it: progress, memory, requests to stop, its end.

The child is a process group of its own, so that toolchain and measuring processes below it end with it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import psutil
import structlog

from worker.errors import CompileDied, CompileFailed, CompileOutOfMemory, CompileStopped
from worker.protocol import (
    CompileRequest,
    Done,
    Failed,
    Progress,
    Report,
    Word,
    decode_report,
    encode_request,
)

log = structlog.get_logger()

_PYTHON = (sys.executable, *(("-P",) if sys.flags.safe_path else ()))
_TICK_S = 0.25
_KEPT_LOGS = 100
_TAIL_BYTES = 4096
_TAIL_SHOWN = 300


@dataclass(frozen=True, slots=True)
class Watch:
    """What the attempt wants to know of a running compile, and what it has to say. Called from one thread."""

    on_progress: Callable[[Progress], None]
    on_memory: Callable[[int], None]
    should_stop: Callable[[], bool]
    is_busy: Callable[[], bool]


class Compiler(Protocol):
    """Turns a directory with a checkpoint into an artifact and tokenizer files."""

    def compile(self, request: CompileRequest, log_path: Path, watch: Watch) -> Done:
        """Block until it is done; the child's own output goes to `log_path`.

        Raises:
            CompileFailed: the checkpoint cannot be compiled.
            CompileStopped: `watch.should_stop` became true.
            CompileOutOfMemory: it went over its limit.
            CompileDied: it ended without an answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class ProcessCompilerConfig:
    """`environment` is all that the child inherits: no credentials."""

    memory_limit_bytes: int
    environment: Mapping[str, str]
    niceness: int = 10
    stop_grace_s: float = 5.0
    program: tuple[str, ...] = (*_PYTHON, "-m", "worker.compile_child")


class ProcessCompiler:
    """Runs `worker.compile_child`."""

    def __init__(self, config: ProcessCompilerConfig) -> None:
        self._config = config

    def compile(self, request: CompileRequest, log_path: Path, watch: Watch) -> Done:
        log_path.parent.mkdir(parents=True, exist_ok=True)
        _drop_old_logs(log_path.parent)
        scratch = Path(request.out_dir).parent / "tmp"
        scratch.mkdir(exist_ok=True)
        with log_path.open("wb") as output:
            process = subprocess.Popen(
                [*self._config.program, "--niceness", str(self._config.niceness)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**self._config.environment, "TMPDIR": str(scratch)},  # swept with the workspace
                start_new_session=True,
            )
        run = _Run(process, self._config, watch)
        try:
            run.send(encode_request(request))
            return run.until_done(log_path)
        finally:
            run.end()


class _Run:
    """One child. Its reports arrive through a queue, so that a silent child is watched like a chatty one."""

    def __init__(self, process: subprocess.Popen[bytes], config: ProcessCompilerConfig, watch: Watch) -> None:
        assert process.stdout is not None, "the child's stdout is a pipe"
        self._process = process
        self._config = config
        self._watch = watch
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._answer: Done | Failed | None = None
        self._peak_bytes = 0
        self._was_busy = False
        self._stop_by: float | None = None
        threading.Thread(
            target=_read_reports, args=(process.stdout, self._reports), name="compile-reports", daemon=True
        ).start()

    def send(self, line: bytes) -> None:
        """Write to the child; one that is gone shows by its end, not here."""
        assert self._process.stdin is not None, "the child's stdin is a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def until_done(self, log_path: Path) -> Done:
        watched_at = 0.0
        while True:
            try:
                report = self._reports.get(timeout=_TICK_S)
            except queue.Empty:
                report = None
            else:
                if report is None:
                    break
                self._take(report)
            if time.monotonic() - watched_at >= _TICK_S:
                self._tick()
                watched_at = time.monotonic()
        return self._result(log_path)

    def end(self) -> None:
        """Leave no process of the group behind, nor a descendant that made itself a group of its own."""
        descendants = _descendants(self._process.pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _take(self, report: Report) -> None:
        if isinstance(report, Progress):
            self._watch.on_progress(report)
        else:
            self._answer = report

    def _tick(self) -> None:
        used = group_memory_bytes(self._process.pid)
        self._peak_bytes = max(self._peak_bytes, used)
        self._watch.on_memory(used)
        if used > self._config.memory_limit_bytes:
            raise CompileOutOfMemory(self._peak_bytes, self._config.memory_limit_bytes)
        if self._stop_by is None and self._watch.should_stop():
            self._stop_by = time.monotonic() + self._config.stop_grace_s
            self._say(Word.STOP)
        if self._stop_by is not None and time.monotonic() > self._stop_by:
            raise CompileStopped
        is_busy = self._watch.is_busy()
        if is_busy != self._was_busy:
            self._was_busy = is_busy
            self._say(Word.BUSY if is_busy else Word.IDLE)

    def _say(self, word: Word) -> None:
        self.send(word.encode() + b"\n")

    def _result(self, log_path: Path) -> Done:
        code = self._process.wait()
        if self._stop_by is not None:
            raise CompileStopped
        if isinstance(self._answer, Done) and code == 0:
            return self._answer
        if isinstance(self._answer, Failed):
            raise CompileFailed(self._answer.message, code=self._answer.code)
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        raise CompileDied(how, self._peak_bytes, "" if code < 0 else _last_line(log_path))


def group_memory_bytes(pid: int) -> int:
    """Resident bytes of a process and its descendants, pages mapped from files left out."""
    total = 0
    for process in _descendants(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            memory = process.memory_info()
            total += memory.rss - getattr(memory, "shared", 0)
    return total


def _descendants(pid: int) -> list[psutil.Process]:
    """The process and all below it, as far as they still run."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _read_reports(stdout: IO[bytes], reports: queue.SimpleQueue[Report | None]) -> None:
    """Pass reports on until end of file; None is the last. A line that is no report is logged and skipped."""
    try:
        for line in stdout:
            try:
                reports.put(decode_report(line))
            except ValueError:
                log.warning("compile_report_unreadable", line=line[:200].decode(errors="replace"))
    finally:
        reports.put(None)


def _drop_old_logs(directory: Path) -> None:
    old = sorted(directory.glob("compile-*.log"))
    for path in old[: max(len(old) - _KEPT_LOGS + 1, 0)]:
        path.unlink(missing_ok=True)


def _last_line(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:_TAIL_SHOWN] if lines else ""
