"""Real servers for service tests, started once a run."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.embedded.valkey import start_valkey


@contextmanager
def short_directory() -> Iterator[Path]:
    """A new directory with a path short enough for Unix sockets below it."""
    path = Path(tempfile.mkdtemp(prefix="cd-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def running_valkey() -> Iterator[str]:
    """The URL of a Valkey server of its own."""
    with short_directory() as home:
        server = start_valkey(home)
        try:
            yield server.url
        finally:
            server.stop()


def free_port() -> int:
    """A port of loopback that nobody listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
