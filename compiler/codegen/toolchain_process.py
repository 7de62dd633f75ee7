"""Runs a compiler as a child that can be stopped: a process group of its own, a deadline, bounded output."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence

from compiler.codegen.toolchain_errors import CompileCancelled, CompileFailed, CompileTimeout

_FIRST_POLL_S = 0.002
_POLL_S = 0.05
_MAX_OUTPUT_BYTES = 1 << 20


def run_compiler(
    command: Sequence[str], *, timeout_s: float, should_stop: Callable[[], bool] = lambda: False
) -> str:
    """What the command printed, both streams together.

    Raises:
        CompileFailed: it ended with another status than 0, or could not be started.
        CompileTimeout: it did not end in time; it and its children are gone.
        CompileCancelled: `should_stop` answered true; likewise.
    """
    with tempfile.TemporaryFile() as output:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise CompileFailed(command, -1, str(error)) from error
        try:
            status = _wait(child, command, timeout_s, should_stop)
        finally:
            _end(child)
        output.seek(0)
        text = output.read(_MAX_OUTPUT_BYTES).decode(errors="replace")
    if status != 0:
        raise CompileFailed(command, status, text)
    return text


def _wait(
    child: subprocess.Popen[bytes], command: Sequence[str], timeout_s: float, should_stop: Callable[[], bool]
) -> int:
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_POLL_S
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=pause_s)
        if should_stop():
            raise CompileCancelled(command)
        if time.monotonic() > deadline:
            raise CompileTimeout(command, timeout_s)
        pause_s = min(2 * pause_s, _POLL_S)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the child's group; the driver's own children are in it."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
