"""Memory of a program: zeroed regions for arenas and caches, and read-only mappings of weight files."""

from __future__ import annotations

import contextlib
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.runtime.errors import LoadFailed

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

ALIGNMENT = 64
_HUGE_PAGE = 2 << 20
_POPULATE: int = getattr(mmap, "MAP_POPULATE", 0)


def zeroed(nbytes: int) -> Bytes:
    """A region of zeros, 64-byte aligned; a large one asks for huge pages. Untouched pages take no memory.

    The mapping lives as long as the array or a view of it.

    Raises:
        LoadFailed: the system has not so much address space to give.
    """
    is_large = nbytes >= _HUGE_PAGE
    span = max(nbytes, 1) + (_HUGE_PAGE if is_large else 0)
    try:
        mapping = mmap.mmap(-1, span, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise LoadFailed(f"no memory for {nbytes} bytes: {error}") from error
    whole = np.frombuffer(mapping, dtype=np.uint8)
    start = -address_of(whole) % (_HUGE_PAGE if is_large else ALIGNMENT)
    if is_large and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            mapping.madvise(mmap.MADV_HUGEPAGE)
    return whole[start : start + nbytes]


def mapped(path: Path) -> Bytes:
    """The bytes of a file, read-only and shared with whoever maps it too. Its pages are read in now.

    Raises:
        LoadFailed: the file cannot be mapped.
    """
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | _POPULATE, prot=mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise LoadFailed(f"{path.name} cannot be mapped: {error}") from error
    return np.frombuffer(mapping, dtype=np.uint8)


def address_of(array: Array) -> int:
    """Where the first element lies."""
    return int(array.ctypes.data)
