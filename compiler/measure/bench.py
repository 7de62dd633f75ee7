"""The bench: a child process that runs kernels, and the buffers it shares with us."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from compiler.errors import CompilerError

Array = npt.NDArray[Any]


class CandidateCrashed(CompilerError):
    """A candidate killed the process that ran it, or did not come back in time."""

    code = "candidate_crashed"


class Bench:
    """Runs kernels in a child; starts a new child after a crash. Use as a context manager."""

    def __init__(self, work_dir: Path, threads: int, deadline_s: float = 60.0) -> None:
        self._dir = work_dir
        self._threads = threads
        self._deadline_s = deadline_s
        self._child: subprocess.Popen[str] | None = None
        self._loaded: dict[str, Any] | None = None
        self._files = 0
        self._shared: dict[int, tuple[Array, str]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def load(self, shared_object: Path, scratch_bytes: int) -> None:
        """Make a shared object's kernels the ones that `run` calls, with a fresh team of threads."""
        wanted = {
            "op": "load",
            "path": str(shared_object),
            "threads": self._threads,
            "scratch_bytes": scratch_bytes,
        }
        if wanted == self._loaded and self._child is not None:
            return
        self._loaded = wanted
        try:
            self._ask(self._loaded)
        except CandidateCrashed:
            self._loaded = None
            raise

    def share(self, array: Array) -> tuple[str, Array]:
        """A file that holds `array`, and our mapping of it: what a kernel writes shows there."""
        self._files += 1
        path = self._dir / f"buffer{self._files}.bin"
        nbytes = max(array.nbytes, 64)
        raw = np.memmap(path, dtype=np.uint8, mode="w+", shape=(nbytes,))
        shared: Array = raw[: array.nbytes].view(array.dtype).reshape(array.shape)
        shared[...] = array
        return str(path), shared

    def shared_once(self, array: Array) -> str:
        """A file that holds `array`, the same until `forget` for the same array: for what is only read."""
        if id(array) not in self._shared:
            self._shared[id(array)] = array, self.share(array)[0]
        return self._shared[id(array)][1]

    def forget(self) -> None:
        """Drop every shared buffer; their arrays stay valid for whoever still holds them."""
        self._shared.clear()
        if self._child is not None:
            self._ask({"op": "forget"})
        for path in self._dir.glob("buffer*.bin"):
            path.unlink()

    def run(
        self, symbol: str, copies: Sequence[Sequence[str]], dims: Sequence[int], repeats: int = 1
    ) -> list[float]:
        """Seconds per launch of `symbol`, for each repeat.

        Raises:
            CandidateCrashed: the child died or passed the deadline; the next call starts a new one.
        """
        return self._ask(
            {
                "op": "run",
                "symbol": symbol,
                "copies": [list(c) for c in copies],
                "dims": list(dims),
                "repeats": repeats,
            }
        )

    def _ask(self, request: dict[str, Any]) -> list[float]:
        if self._child is None or self._child.poll() is not None:
            self._start()
            if self._loaded is not None and request is not self._loaded:
                self._ask(self._loaded)
        assert self._child is not None
        stdin, stdout = _pipes(self._child)
        try:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            ready, _, _ = select.select([stdout], [], [], self._deadline_s)
            line = stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._stop()
            raise CandidateCrashed(f"{request.get('symbol', request['op'])} ended the child (status {code})")
        reply = json.loads(line)
        if "error" in reply:
            raise CandidateCrashed(reply["error"])
        return [float(s) for s in reply["seconds"]]

    def _start(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "compiler.measure.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _stop(self) -> int | None:
        if self._child is None:
            return None
        self._child.kill()
        code = self._child.wait()
        for pipe in _pipes(self._child):
            pipe.close()
        self._child = None
        return code


def _pipes(child: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert child.stdin is not None
    assert child.stdout is not None
    return child.stdin, child.stdout
