"""The process that runs candidates: `python -m compiler.measure.child`. It loads shared objects and calls
kernels.

Speaks JSON lines on stdin and stdout. Buffers are files that the parent maps too, so nothing is copied. A
candidate
that crashes or hangs takes only this process with it.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
import time
from typing import Any

_WARM_UPS = 2


class _Launch(ctypes.Structure):
    _fields_ = (("fn", ctypes.c_void_p), ("bufs", ctypes.c_void_p), ("stage_end", ctypes.c_int64))


class Runner:
    """One loaded shared object and the files mapped so far."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[mmap.mmap, int]] = {}
        self._library: ctypes.CDLL | None = None
        self._team: int | None = None

    def load(self, path: str, threads: int, scratch_bytes: int) -> None:
        """Load a shared object and start its team."""
        if self._library is not None and self._team is not None:
            self._library.candela_team_destroy(ctypes.c_void_p(self._team))
        library = ctypes.CDLL(path)
        library.candela_team_create.restype = ctypes.c_void_p
        library.candela_team_create.argtypes = [ctypes.c_int, ctypes.c_size_t]
        library.candela_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
        self._library, self._team = library, library.candela_team_create(threads, scratch_bytes)
        if not self._team:
            raise RuntimeError("the thread team did not start")

    def run(self, symbol: str, copies: list[list[str]], dims: list[int], repeats: int) -> list[float]:
        """Launch `symbol` once per copy of its buffers, `repeats` times after warm-ups; seconds per
        launch.
        """
        assert self._library is not None, "run follows load"
        fn = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p)
        arrays = [(ctypes.c_void_p * len(names))(*(self._address(n) for n in names)) for names in copies]
        launches = (_Launch * len(arrays))(*(_Launch(fn, ctypes.addressof(a), 1) for a in arrays))
        sizes = (ctypes.c_int64 * len(dims))(*dims)
        samples = []
        for i in range(repeats + (_WARM_UPS if repeats > 1 else 0)):
            start = time.perf_counter()
            self._library.candela_run(self._team, launches, len(arrays), sizes)
            if i >= _WARM_UPS or repeats == 1:
                samples.append((time.perf_counter() - start) / len(arrays))
        return samples

    def forget(self) -> None:
        """Unmap the buffers of a definition that is done."""
        self._files.clear()

    def _address(self, path: str) -> int:
        if path not in self._files:
            with open(path, "r+b") as file:
                mapped = mmap.mmap(file.fileno(), 0)
            self._files[path] = (mapped, ctypes.addressof(ctypes.c_char.from_buffer(mapped)))
        return self._files[path][1]


def _answer(runner: Runner, request: dict[str, Any]) -> list[float]:
    match request["op"]:
        case "load":
            runner.load(request["path"], request["threads"], request["scratch_bytes"])
        case "run":
            return runner.run(request["symbol"], request["copies"], request["dims"], request["repeats"])
        case "forget":
            runner.forget()
    return []


def main() -> None:
    """Serve requests until stdin ends."""
    runner = Runner()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply: dict[str, Any] = {"seconds": _answer(runner, request)}
        except (OSError, AttributeError, RuntimeError, ValueError) as error:
            reply = {"error": str(error)}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
