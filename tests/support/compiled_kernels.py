"""Builds kernels for a level and calls them in this process, one thread's share after another.

Every array ends at memory that may not be touched, scratch is full of NaN, and what a kernel writes starts as
NaN: a read beyond a buffer ends the process, and what was not computed shows.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.codegen.layout import pack
from compiler.codegen.toolchain import Toolchain
from compiler.ir.dim import bind
from compiler.ir.dtype import DType, to_numpy_storage
from compiler.lower.tiles import Param
from compiler.measure.builds import kernels_source
from compiler.runtime.cpu import Level
from compiler.search.candidates import Candidate
from tests.support.micro_kernels import guarded

Array = npt.NDArray[Any]
DIMS = ("B", "M", "N", "NB", "R", "S", "T")


@dataclass(frozen=True, slots=True)
class Place:
    """What a kernel is built for. `defines` may emulate instructions that this CPU lacks."""

    level: Level
    defines: tuple[str, ...] = ()

    def build(self, toolchain: Toolchain, unit: Sequence[Candidate]) -> Path:
        return toolchain.shared_object(kernels_source(unit, DIMS), self.level, defines=self.defines)


class CompiledKernels:
    """The kernels of `candidates`, built side by side in units of a few."""

    def __init__(self, toolchain: Toolchain, place: Place, candidates: Iterable[Candidate]) -> None:
        self._kernels = {c.name: c.kernel for c in candidates}
        units = _units(list(candidates))
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            paths = list(pool.map(lambda unit: place.build(toolchain, unit), units))
        libraries = [ctypes.CDLL(str(path), mode=ctypes.RTLD_LOCAL) for path in paths]
        self._functions = {
            c.name: getattr(library, c.name)
            for unit, library in zip(units, libraries, strict=True)
            for c in unit
        }

    def run(
        self,
        name: str,
        inputs: Mapping[str, Array],
        dims: Mapping[str, int],
        threads: int = 1,
        before: Array | None = None,
    ) -> Array:
        """What `name` writes, in storage form; places that it leaves alone are as `before`, or NaN."""
        kernel = self._kernels[name]
        arrays = [self._argument(p, inputs, dims, before) for p in kernel.params]
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
        sizes = (ctypes.c_int64 * len(DIMS))(*(dims.get(d, 0) for d in DIMS))
        for thread in range(threads):
            scratch = guarded(np.full(-(-kernel.scratch_bytes() // 64) * 16 + 16, np.nan, np.float32))
            self._functions[name](pointers, sizes, ctypes.c_void_p(scratch.ctypes.data), thread, threads)
        return next(a for a, p in zip(arrays, kernel.params, strict=True) if p.is_written)

    def _argument(
        self, param: Param, inputs: Mapping[str, Array], dims: Mapping[str, int], before: Array | None
    ) -> Array:
        if param.is_written:
            shape = tuple(bind(size, dims) for size in param.shape)
            poison = np.full(shape, _poison(param.dtype), to_numpy_storage(param.dtype))
            return guarded(poison if before is None else before)
        if param.is_packed:
            return guarded(pack(inputs[param.buffer], param.layout))
        return guarded(np.ascontiguousarray(inputs[param.buffer]))


def _poison(dtype: DType) -> float | int:
    """A value that no kernel writes by accident: NaN where there is one."""
    return {DType.BF16: 0x7FC1, DType.F16: np.nan, DType.F32: np.nan}.get(dtype, 99)


def _units(candidates: Sequence[Candidate], size: int = 6) -> list[list[Candidate]]:
    return [list(candidates[i : i + size]) for i in range(0, len(candidates), size)]
