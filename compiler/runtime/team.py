"""A shared object of kernels and its thread team, through ctypes. `micro/abi.h` is the other side of this."""

from __future__ import annotations

import _ctypes
import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler.runtime.cpu import Feature, UnsupportedCpu
from compiler.runtime.errors import LoadFailed, ProgramError

_LAUNCH = np.dtype([("fn", np.uint64), ("bufs", np.uint64), ("stage_end", np.int64)])


class KernelLibrary:
    """An opened shared object. Its code runs only once `team` is called."""

    def __init__(self, path: Path) -> None:
        """Open it, and name what it promises.

        Raises:
            LoadFailed: it cannot be opened, or is no shared object of kernels.
        """
        try:
            self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)
            self._declare()
        except (OSError, AttributeError) as error:
            raise LoadFailed(f"{path.name} is no kernel library: {error}") from error

    def check_runs_on(self, features: Feature, level: str) -> None:
        """Raises: `UnsupportedCpu` when the kernels were built for more than `features`."""
        if Feature(self._library.candela_required_features()) & ~features:
            raise UnsupportedCpu((level,), features)

    def address(self, symbol: str) -> int:
        """Where the kernel called `symbol` lies.

        Raises:
            LoadFailed: there is none.
        """
        try:
            found = ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        except AttributeError as error:
            raise LoadFailed(f"there is no kernel {symbol}") from error
        assert found is not None, "a symbol that was found has an address"
        return found

    def team(self, threads: int, scratch_bytes: int) -> Team:
        """Start a team of `threads`, the caller being the first, with so much scratch each.

        Raises:
            LoadFailed: threads or memory ran out, or the system refuses a state that the level needs.
        """
        handle = self._library.candela_team_create(threads, scratch_bytes) if threads > 0 else None
        if handle is None:
            raise LoadFailed(f"a team of {threads} threads with {scratch_bytes} bytes each did not start")
        return Team(self._library, handle, threads)

    def close(self) -> None:
        """Unload the code. No team of it may be left, and no address be used again."""
        _ctypes.dlclose(self._library._handle)  # ctypes itself only ever loads

    def _declare(self) -> None:
        lib, pointer, integer = self._library, ctypes.c_void_p, ctypes.c_int64
        lib.candela_team_create.restype = pointer
        lib.candela_team_create.argtypes = (ctypes.c_int, ctypes.c_size_t)
        lib.candela_team_destroy.restype = None
        lib.candela_team_destroy.argtypes = (pointer,)
        lib.candela_team_pin.argtypes = (pointer, pointer)
        lib.candela_run.argtypes = (pointer, pointer, integer, pointer)
        lib.candela_run_timed.argtypes = (pointer, pointer, integer, pointer, pointer)
        lib.candela_required_features.restype = ctypes.c_uint64


class LaunchList:
    """Launches laid out as the team reads them: built once, run every step."""

    def __init__(self, launches: Sequence[tuple[int, Sequence[int], bool]]) -> None:
        """Each launch is a kernel's address, its buffers' addresses, and whether a barrier follows."""
        flat = [address for _, buffers, _ in launches for address in buffers]
        self._pointers = np.array(flat or [0], dtype=np.uint64)
        self._launches = np.zeros(len(launches), dtype=_LAUNCH)
        at = int(self._pointers.ctypes.data)
        for i, (fn, buffers, stage_end) in enumerate(launches):
            self._launches[i] = (fn, at, int(stage_end))
            at += len(buffers) * self._pointers.itemsize
        self.address = int(self._launches.ctypes.data)
        self.count = len(launches)


class Team:
    """Threads that wait between steps. Not for two callers at once; `close` before the library."""

    def __init__(self, library: ctypes.CDLL, handle: int, threads: int) -> None:
        self._library = library
        self._handle: int | None = handle
        self._run = library.candela_run
        self.threads = threads

    def run(self, launches: LaunchList, dims: npt.NDArray[np.int64]) -> None:
        """Run the launches to the end; the interpreter is free meanwhile.

        Raises:
            ProgramError: the team is closed, or runs already.
        """
        if self._run(self._handle, launches.address, launches.count, dims.ctypes.data):
            raise ProgramError("the thread team is closed or already running")

    def run_timed(self, launches: LaunchList, dims: npt.NDArray[np.int64]) -> list[float]:
        """Run with a barrier after every launch; seconds of each.

        Raises:
            ProgramError: as `run`.
        """
        seconds = np.zeros(launches.count, dtype=np.float64)
        if self._library.candela_run_timed(
            self._handle, launches.address, launches.count, dims.ctypes.data, seconds.ctypes.data
        ):
            raise ProgramError("the thread team is closed or already running")
        return [float(s) for s in seconds]

    def pin(self, cpus: Sequence[int | None]) -> bool:
        """Keep thread i on `cpus[i]`, None or a short list leaves it alone. Whether all could be."""
        wanted = [*(-1 if cpu is None else cpu for cpu in cpus), *[-1] * self.threads][: self.threads]
        table = np.array(wanted, dtype=np.int32)
        return self._handle is not None and not self._library.candela_team_pin(
            self._handle, table.ctypes.data
        )

    def close(self) -> None:
        """Join the threads. Again is harmless."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self._library.candela_team_destroy(handle)
