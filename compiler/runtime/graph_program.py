"""A compiled graph in memory: named arrays in, named arrays out. It has no cache and no notion of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.artifact import BufferKind, LevelProgram
from compiler.artifact.check import largest_nbytes
from compiler.ir.dim import Dim, Size, Symbol, bind, symbol
from compiler.ir.dtype import DType, to_numpy_storage
from compiler.runtime.errors import ProgramClosed, StepRefused
from compiler.runtime.memory import ALIGNMENT, Bytes, address_of, zeroed
from compiler.runtime.team import KernelLibrary, LaunchList

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """A tensor that a graph takes or gives. Sizes may be symbols; bf16 lies in uint16 arrays."""

    shape: tuple[Size, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class GraphParts:
    """What a graph was compiled to. `weights` are packed bytes by the name launches use; `buffers` says where
    each output lies.
    """

    symbols: tuple[Symbol, ...]
    program: LevelProgram
    weights: Mapping[str, npt.NDArray[np.uint8]]
    inputs: Mapping[str, Signature]
    outputs: Mapping[str, Signature]
    buffers: Mapping[str, str]


class GraphProgram:
    """Runs a graph. One caller at a time."""

    def __init__(self, parts: GraphParts, kernels: Path, threads: int) -> None:
        """Load the shared object `kernels` and start `threads`.

        Raises:
            LoadFailed: memory or threads ran out, or the kernels cannot be opened.
        """
        self._parts = parts
        self._known: dict[str, Dim] = {s.name: symbol(s.name, s.low, s.high) for s in parts.symbols}
        self._regions: dict[str, Bytes] = {name: _aligned(data) for name, data in parts.weights.items()}
        addresses = self._place()
        self._library = KernelLibrary(kernels)
        (bucket,) = parts.program.buckets
        self._launches = LaunchList(
            [
                (self._library.address(x.kernel), [addresses[a] for a in x.args], x.stage_end)
                for x in bucket.launches
            ]
        )
        self.kernels = tuple(x.kernel for x in bucket.launches)
        self._team = self._library.team(threads, parts.program.scratch_bytes)
        self._dims = np.zeros(max(len(parts.symbols), 1), dtype=np.int64)
        self._is_open = True

    def __call__(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The graph's outputs: views that the next call overwrites.

        Raises:
            StepRefused: an input is missing, unknown, or of another type or shape.
            ProgramClosed: after `close`.
        """
        sizes = self._write(inputs)
        self._team.run(self._launches, self._dims)
        return {name: self._read(name, signature, sizes) for name, signature in self._parts.outputs.items()}

    def run_timed(self, inputs: Mapping[str, Array]) -> list[tuple[str, float]]:
        """Seconds of each kernel, run with a barrier after every one.

        Raises:
            StepRefused, ProgramClosed: as a call.
        """
        self._write(inputs)
        return list(zip(self.kernels, self._team.run_timed(self._launches, self._dims), strict=True))

    def close(self) -> None:
        """Join the threads, unload the kernels. Again is harmless."""
        if self._is_open:
            self._is_open = False
            self._team.close()
            self._library.close()

    def __enter__(self) -> GraphProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _place(self) -> dict[str, int]:
        """The address of every name; the arena is one region."""
        buffers = self._parts.program.buffers
        arena = [b for b in buffers if b.kind is BufferKind.ARENA]
        end = max((b.offset + largest_nbytes(b, self._known) for b in arena), default=0)
        self._regions[""] = zeroed(end)
        for b in buffers:
            if b.kind is not BufferKind.ARENA:
                size = -(-largest_nbytes(b, self._known) // ALIGNMENT) * ALIGNMENT
                self._regions[b.name] = zeroed(size)
        base = address_of(self._regions[""])
        placed = {name: address_of(region) for name, region in self._regions.items()}
        return placed | {b.name: base + b.offset for b in arena}

    def _write(self, inputs: Mapping[str, Array]) -> dict[str, int]:
        if not self._is_open:
            raise ProgramClosed
        wanted = self._parts.inputs
        odd = sorted(set(inputs) ^ set(wanted))
        if odd:
            raise StepRefused(odd[0], f"the graph takes {', '.join(wanted)}")
        sizes = _sizes(wanted, inputs, self._parts.symbols)
        for name, array in inputs.items():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self._regions[name][: flat.size] = flat
        self._dims[: len(self._parts.symbols)] = [sizes[s.name] for s in self._parts.symbols]
        return sizes

    def _read(self, name: str, signature: Signature, sizes: Mapping[str, int]) -> Array:
        shape = tuple(bind(n, sizes) for n in signature.shape)
        dtype = to_numpy_storage(signature.dtype)
        region = self._regions[self._parts.buffers[name]]
        count = int(np.prod(shape, dtype=np.int64))
        return region[: count * dtype.itemsize].view(dtype).reshape(shape)


def _sizes(
    wanted: Mapping[str, Signature], inputs: Mapping[str, Array], symbols: Sequence[Symbol]
) -> dict[str, int]:
    """What the inputs' shapes say each symbol is, once all agree."""
    sizes: dict[str, int] = {}
    ranges = {symbol(s.name, s.low, s.high): s for s in symbols}
    for name, signature in wanted.items():
        array = inputs[name]
        if array.dtype != to_numpy_storage(signature.dtype) or array.ndim != len(signature.shape):
            message = (
                f"must be {signature.dtype} of {len(signature.shape)} axes, not {array.dtype} of {array.ndim}"
            )
            raise StepRefused(name, message)
        for size, found in zip(signature.shape, array.shape, strict=True):
            if isinstance(size, Dim) and size in ranges:
                sizes.setdefault(ranges[size].name, found)
    for s in symbols:
        if not s.low <= sizes.get(s.name, -1) <= s.high:
            raise StepRefused(s.name, f"must be {s.low} to {s.high}, not {sizes.get(s.name, 'unknown')}")
    for name, signature in wanted.items():
        shape = tuple(bind(n, sizes) for n in signature.shape)
        if inputs[name].shape != shape:
            raise StepRefused(name, f"must have shape {list(shape)}, not {list(inputs[name].shape)}")
    return sizes


def _aligned(data: npt.NDArray[np.uint8]) -> Bytes:
    region = zeroed(-(-data.nbytes // ALIGNMENT) * ALIGNMENT)
    region[: data.nbytes] = data
    return region
