"""Replicas as child processes of the scheduler. Owns their pipes, sockets, logs, signals and reaping.

One thread a replica waits for its ready line and its end; everything else runs on the caller's thread, which
must live as long as the launcher (a child's death signal is bound to the thread that forked it).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import structlog

from common.clock import Clock
from common.wire import ReplicaStats, StartFailed, decode_ready
from scheduler.launchers import child
from scheduler.launchers.leftovers import (
    PidRecord,
    forget,
    read_pid_records,
    running_process,
    write_pid_record,
)
from scheduler.launchers.port import BecameReady, Endpoint, Exited, LaunchFailed, Notify, ReplicaSpec

log = structlog.get_logger()

_PYTHON = (sys.executable, *(("-P",) if sys.flags.safe_path else ()))
_LONGEST_SOCKET_PATH = 100
_OOM_SCORE = 500
_WATCH_S = 2.0
_KEPT_LOGS = 100
_TAIL_BYTES = 4096
_TAIL_SHOWN = 300


@dataclass(frozen=True, slots=True)
class ProcessLauncherConfig:
    """`program` is what runs a replica, without its options; `environment` is all that it inherits."""

    run_dir: Path
    logs_dir: Path
    environment: Mapping[str, str]
    program: tuple[str, ...] = (*_PYTHON, "-m", "batching.replica.main")


class ProcessLauncher:
    """Runs replicas with `subprocess`, each in a process group of its own."""

    def __init__(self, config: ProcessLauncherConfig, notify: Notify, clock: Clock) -> None:
        self._config = config
        self._notify = notify
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()
        config.run_dir.mkdir(parents=True, exist_ok=True)
        config.logs_dir.mkdir(parents=True, exist_ok=True)

    def launch(self, spec: ReplicaSpec) -> Endpoint:
        socket_path, secret = self._socket_path(spec.replica_id), secrets.token_urlsafe(32)
        read_fd, write_fd = os.pipe()
        log_path = self._log_path(spec.replica_id)
        try:
            with log_path.open("ab") as output:
                process = subprocess.Popen(
                    [*_wrapper(spec), *self._config.program, *_options(spec, socket_path, write_fd)],
                    env={**self._config.environment, "CANDELA_REPLICA_SECRET": secret},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=(write_fd,),
                    start_new_session=True,
                )
        except OSError as error:
            os.close(read_fd)
            raise LaunchFailed(f"replica {spec.replica_id} could not be started: {error}") from error
        finally:
            os.close(write_fd)
        record = self._record(spec.replica_id, process.pid, socket_path)
        running = _Running(spec, process, record, log_path)
        self._watch(running, lambda: self._watch_child(running, read_fd))
        return Endpoint(socket_path, secret, process.pid)

    def terminate(self, replica_id: str) -> None:
        self._signal(replica_id, signal.SIGTERM)

    def kill(self, replica_id: str) -> None:
        self._signal(replica_id, signal.SIGKILL)

    def adopt_leftovers(self) -> tuple[str, ...]:
        adopted: list[str] = []
        for record in read_pid_records(self._config.run_dir):
            process = running_process(record)
            if process is None:
                forget(self._config.run_dir, record)
                continue
            leftover = _Running(None, process, record, None, was_told_to_go=True)
            self._watch(leftover, self._leftover_watch(leftover, process))
            self.terminate(record.replica_id)
            adopted.append(record.replica_id)
        return tuple(adopted)

    def close(self, grace_s: float) -> None:
        with self._lock:
            remaining = list(self._running.values())
        for running in remaining:
            self.terminate(running.record.replica_id)
        deadline = self._clock() + grace_s
        for running in remaining:
            running.gone.wait(max(deadline - self._clock(), 0.0))
            self.kill(running.record.replica_id)
        for running in remaining:
            running.gone.wait(_WATCH_S)

    def _watch(self, running: _Running, watch: Callable[[], None]) -> None:
        name = running.record.replica_id
        with self._lock:
            self._running[name] = running
        threading.Thread(target=watch, name=f"watch-{name}", daemon=True).start()

    def _watch_child(self, running: _Running, read_fd: int) -> None:
        process, spec = running.process, running.spec
        assert isinstance(process, subprocess.Popen), "only children have a ready pipe"
        assert spec is not None, "only children have a specification"
        said = _read_ready(read_fd)
        if isinstance(said, StartFailed):
            running.failure = said
        elif said is not None:
            self._notify(BecameReady(spec.replica_id, said, self._clock()))
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(timeout=_WATCH_S)
                break
            self._check_memory(running, spec.memory_limit_bytes)
        self._ended(running, _describe_exit(code, running))

    def _leftover_watch(self, running: _Running, process: psutil.Process) -> Callable[[], None]:
        def watch() -> None:
            while True:
                with contextlib.suppress(psutil.TimeoutExpired):
                    process.wait(timeout=_WATCH_S)
                    break
            self._ended(running, "left by an earlier scheduler")

        return watch

    def _check_memory(self, running: _Running, limit_bytes: int) -> None:
        used = _private_bytes(running.record.pid)
        if used <= limit_bytes:
            return
        running.over_limit_bytes = used
        log.warning("replica_memory_exceeded", replica_id=running.record.replica_id, used_bytes=used)
        self.kill(running.record.replica_id)

    def _ended(self, running: _Running, detail: str) -> None:
        with self._lock:
            self._running.pop(running.record.replica_id, None)
        forget(self._config.run_dir, running.record)
        is_crash = not running.was_told_to_go
        self._notify(Exited(running.record.replica_id, is_crash, detail, self._clock(), running.failure))
        running.gone.set()

    def _signal(self, replica_id: str, number: signal.Signals) -> None:
        with self._lock:
            running = self._running.get(replica_id)
            if running is None:
                return
            running.was_told_to_go = running.was_told_to_go or running.over_limit_bytes is None
            running.send(number)

    def _record(self, replica_id: str, pid: int, socket_path: str) -> PidRecord:
        try:
            return write_pid_record(self._config.run_dir, replica_id, pid, socket_path)
        except psutil.NoSuchProcess:  # it died already; its watcher will say so
            return PidRecord(replica_id, pid, self._clock(), socket_path)

    def _socket_path(self, replica_id: str) -> str:
        path = str(self._config.run_dir / f"r-{replica_id[-10:]}.sock")
        if len(path.encode()) > _LONGEST_SOCKET_PATH:
            raise LaunchFailed(
                f"the socket path {path!r} is longer than {_LONGEST_SOCKET_PATH} bytes, which Unix sockets "
                "do not take: choose a shorter CANDELA_DATA_DIR"
            )
        return path

    def _log_path(self, replica_id: str) -> Path:
        old = sorted(self._config.logs_dir.glob("replica-*.log"))
        for path in old[: max(len(old) - _KEPT_LOGS + 1, 0)]:
            path.unlink(missing_ok=True)
        return self._config.logs_dir / f"replica-{replica_id}.log"


@dataclass(slots=True, eq=False)
class _Running:
    """A process under watch. Fields change under the launcher's lock or on its watcher thread only."""

    spec: ReplicaSpec | None
    process: subprocess.Popen[bytes] | psutil.Process
    record: PidRecord
    log_path: Path | None
    was_told_to_go: bool = False
    over_limit_bytes: int | None = None
    failure: StartFailed | None = None
    gone: threading.Event = field(default_factory=threading.Event)

    def send(self, number: signal.Signals) -> None:
        """Signal it, unless it is gone; both kinds of process refuse to signal a pid that was reused."""
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            self.process.send_signal(number)


def _wrapper(spec: ReplicaSpec) -> Sequence[str]:
    backstop_bytes = 2 * spec.memory_limit_bytes + (1 << 30)  # address space, not resident pages
    return (
        sys.executable,
        "-I",
        "-S",
        child.__file__,
        str(os.getpid()),
        str(backstop_bytes),
        str(_OOM_SCORE),
    )


def _options(spec: ReplicaSpec, socket_path: str, ready_fd: int) -> Sequence[str]:
    return (
        *("--artifact", str(spec.artifact_dir), "--tokenizer", str(spec.tokenizer_dir)),
        *("--socket", socket_path, "--replica-id", spec.replica_id),
        *("--kv-blocks", str(spec.kv_blocks), "--max-sequences", str(spec.max_sequences)),
        *("--max-batched-tokens", str(spec.max_batched_tokens), "--ready-fd", str(ready_fd)),
    )


def _read_ready(read_fd: int) -> ReplicaStats | StartFailed | None:
    """The ready line, or None when the pipe closed without a good one (the process died or is broken)."""
    with open(read_fd, "rb") as pipe:
        line = pipe.readline()
    try:
        return decode_ready(line) if line else None
    except (ValueError, TypeError, KeyError, AttributeError):
        log.error("ready_line_unreadable", line=line[:200].decode(errors="replace"))
        return None


def _private_bytes(pid: int) -> int:
    """Resident bytes that no other process shares (weights mapped from files are not counted)."""
    try:
        memory = psutil.Process(pid).memory_info()
    except psutil.NoSuchProcess:
        return 0
    return int(memory.rss - getattr(memory, "shared", 0))


def _describe_exit(code: int, running: _Running) -> str:
    if running.over_limit_bytes is not None:
        return f"used {running.over_limit_bytes >> 20} MiB, more than its memory limit"
    if running.failure is not None:
        return f"{running.failure.code}: {running.failure.message}"
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (out of memory?)" if code == -signal.SIGKILL and not running.was_told_to_go else ""
        return f"ended by {name}{hint}"
    tail = _last_line(running.log_path)
    return f"exited with code {code}" + (f": {tail}" if code and tail else "")


def _last_line(path: Path | None) -> str:
    if path is None or not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _TAIL_BYTES, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:_TAIL_SHOWN] if lines else ""
