"""Calls micro-kernels through ctypes: a translation unit that exports each of them, built once per level."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np

from compiler.codegen.toolchain import Toolchain
from compiler.runtime.cpu import Level

SOURCE = (Path(__file__).parent / "micro_kernels.cpp").read_text()


class MicroKernels:
    """The exported functions of one build, taking and returning NumPy arrays."""

    def __init__(self, toolchain: Toolchain, level: Level, defines: tuple[str, ...] = ()) -> None:
        path = toolchain.shared_object(SOURCE, level, defines=defines)
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL)

    def required_features(self) -> int:
        self._library.candela_required_features.restype = ctypes.c_uint64
        return int(self._library.candela_required_features())

    def map(self, name: str, x: np.ndarray, out: type = np.float32, flush: bool = False) -> np.ndarray:
        """`name` of each element, by a loop that is vectorised or, with suffix `_scalar`, is not."""
        x = np.ascontiguousarray(x)
        y = np.empty(x.size, dtype=out)
        self._call(f"map_{name}", _p(y), _p(x), ctypes.c_int64(x.size), ctypes.c_int(flush))
        return y.reshape(x.shape)

    def dot(self, name: str, a: np.ndarray, b: np.ndarray, n: int, c: np.ndarray | None = None) -> np.ndarray:
        """C [M, n] of a kernel over unpacked operands; accumulates onto `c` when it is given.

        C is the left part of a wider array whose rest is checked to be untouched.
        """
        m, k = a.shape
        wide = np.full((m + 1, n + 5), 7.0, dtype=np.float32)
        if c is not None:
            wide[:m, :n] = c
        self._call(
            name, _p(wide), _i64(n + 5), m, n, *_with_stride(a), *_with_stride(b), k, int(c is not None)
        )
        assert (wide[m:] == 7).all(), "rows beyond M are untouched"
        assert (wide[:m, n:] == 7).all(), "columns beyond N are untouched"
        return wide[:m, :n].copy()

    def packed(
        self,
        name: str,
        a: np.ndarray,
        panel: np.ndarray,
        k: int,
        c: np.ndarray | None = None,
        hint: bool = False,
    ) -> np.ndarray:
        """C [M, 64] of a kernel over one packed panel. `a` may be wider than k: what follows is poison."""
        m = a.shape[0]
        wide = np.full((m + 1, 70), 7.0, dtype=np.float32)
        if c is not None:
            wide[:m, :64] = c
        following = _p(panel) if hint else None
        self._call(name, _p(wide), _i64(70), m, *_with_stride(a), _p(panel), k, int(c is not None), following)
        assert (wide[m:] == 7).all(), "rows beyond M are untouched"
        assert (wide[:m, 64:] == 7).all(), "columns beyond the panel are untouched"
        return wide[:m, :64].copy()

    def reference(self, name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
        """The numeric contract of a kernel, element by element; float32, `b` as that contract wants it."""
        a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
        m, k = a.shape
        n = b.shape[1] if name == "reference_chain" else b.shape[0]
        out = np.zeros((m, n), dtype=np.float32) if c is None else c.copy()
        self._call(name, _p(out), m, n, _p(a), _p(b), k, int(c is not None))
        return out

    def _call(self, name: str, *arguments: object) -> None:
        function = getattr(self._library, name)
        function.restype = None
        function(*arguments)


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is followed by memory that may not be touched; whoever reads on dies."""
    page = mmap.PAGESIZE
    span = -(-array.nbytes // page) * page
    region = mmap.mmap(-1, span + page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(region, dtype=np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.mprotect(ctypes.c_void_p(whole.ctypes.data + span), ctypes.c_size_t(page), 0)
    assert not failed, "the page after the array is closed"
    copy = whole[span - array.nbytes : span].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _p(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _i64(value: int) -> ctypes.c_int64:
    return ctypes.c_int64(value)


def _with_stride(array: np.ndarray) -> tuple[ctypes.c_void_p, ctypes.c_int64]:
    """Address and elements from one row to the next; the last axis is dense."""
    assert array.strides[1] == array.itemsize
    return _p(array), _i64(array.strides[0] // array.itemsize)
