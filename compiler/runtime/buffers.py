"""The memory of a loaded program: where each name of its manifest lies, and what the host itself uses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from compiler.artifact import Artifact, ArtifactError, Buffer, BufferKind, LevelProgram
from compiler.artifact.check import buffer_shape, largest_nbytes
from compiler.ir.dim import Dim, bounds, symbol
from compiler.ir.dtype import DType, to_numpy_storage
from compiler.runtime.digests import DigestCheck
from compiler.runtime.errors import LoadFailed
from compiler.runtime.inputs import FIELDS, StepInputs, StepLimits
from compiler.runtime.memory import ALIGNMENT, Array, Bytes, address_of, mapped, zeroed

LOGITS = "logits"
"""The output that a step answers with: float32 [R, vocabulary]."""
BLOCKS_DIM = "NB"
"""The dim that is fixed when a program is loaded."""


class ProgramMemory:
    """Everything that kernels read and write. It lives as long as this object or a view of its arrays."""

    def __init__(self, artifact: Artifact, spec: LevelProgram, kv_blocks: int, *, verify: bool) -> None:
        """Map weights and allocate the rest, for `kv_blocks` blocks of cache.

        With `verify` the weights count only once `finish_checks` has returned.

        Raises:
            ArtifactError: buffers that a step cannot have, or a weights file of another size.
            LoadFailed: more blocks than the program allows, or than there is memory for.
        """
        model = artifact.manifest.model
        self.kv_blocks = kv_blocks
        self.addresses: dict[str, int] = {}
        self._keep: list[Bytes] = []
        self._checks: list[DigestCheck] = []
        known = _known_dims(artifact, kv_blocks)
        self._map_weights(artifact, spec, verify)
        self._place_arena([b for b in spec.buffers if b.kind is BufferKind.ARENA], known)
        arrays = {b.name: self._allocate(b, known) for b in spec.buffers if b.kind is not BufferKind.ARENA}
        self.caches = {
            b.name: _shaped(arrays[b.name], b, known) for b in spec.buffers if b.kind is BufferKind.CACHE
        }
        self.logits = _logits(arrays, spec.buffers, known, model.vocab_size)
        limits = StepLimits(
            model.vocab_size,
            model.max_context,
            model.block_size,
            kv_blocks,
            {d.name: (d.low, d.high) for d in artifact.manifest.dims if d.name != BLOCKS_DIM},
        )
        self.inputs = StepInputs(_step_inputs(arrays, spec.buffers), limits)

    def _map_weights(self, artifact: Artifact, spec: LevelProgram, verify: bool) -> None:
        used = spec.names_used()
        weights = [w for w in artifact.manifest.weights if w.name in used]
        files = {path: mapped(artifact.file(path, verify=False)) for path in {w.file for w in weights}}
        if verify:
            self._checks = [DigestCheck(p, artifact.manifest.files[p].sha256, b) for p, b in files.items()]
        self._keep += files.values()
        self.addresses |= {w.name: address_of(files[w.file]) + w.offset for w in weights}

    def finish_checks(self) -> None:
        """Wait for the digests of the mapped weights, which threads compute meanwhile.

        Raises:
            ArtifactError: a file is damaged.
        """
        for check in self._checks:
            check.finish()
        self._checks = []

    def _place_arena(self, buffers: Iterable[Buffer], known: Mapping[str, Dim]) -> None:
        ends = {b: b.offset + largest_nbytes(b, known) for b in buffers}
        arena = zeroed(max(ends.values(), default=0))
        self._keep.append(arena)
        self.addresses |= {b.name: address_of(arena) + b.offset for b in ends}

    def _allocate(self, buffer: Buffer, known: Mapping[str, Dim]) -> Bytes:
        region = zeroed(-(-largest_nbytes(buffer, known) // ALIGNMENT) * ALIGNMENT)
        self._keep.append(region)
        self.addresses[buffer.name] = address_of(region)
        return region


def _known_dims(artifact: Artifact, kv_blocks: int) -> dict[str, Dim]:
    """The manifest's dims, with the number of blocks fixed to this replica's."""
    known: dict[str, Dim] = {}
    for d in artifact.manifest.dims:
        low, high = d.low, d.high
        if d.name == BLOCKS_DIM:
            if not max(low, 1) <= kv_blocks <= high:
                raise LoadFailed(f"kv_blocks = {kv_blocks} is outside {max(low, 1)}..{high}")
            low = high = kv_blocks
        known[d.name] = symbol(d.name, low, high)
    return known


def _shaped(region: Bytes, buffer: Buffer, known: Mapping[str, Dim]) -> Array:
    """A cache as an array. Only the number of blocks, which is known by now, may be open in its shape."""
    ranges = [bounds(size) for size in buffer_shape(buffer, known)]
    if any(low != high for low, high in ranges):
        raise ArtifactError("its shape changes between steps", where=f"cache {buffer.name}")
    shape = tuple(high for _, high in ranges)
    dtype = to_numpy_storage(buffer.dtype)
    count = int(np.prod(shape, dtype=np.int64))
    return region[: count * dtype.itemsize].view(dtype).reshape(shape)


def _logits(
    arrays: Mapping[str, Bytes], buffers: Iterable[Buffer], known: Mapping[str, Dim], vocab_size: int
) -> npt.NDArray[np.float32]:
    for b in buffers:
        if b.name == LOGITS and b.kind is BufferKind.OUTPUT and b.dtype is DType.F32:
            if buffer_shape(b, known)[1:] != (vocab_size,):
                break
            values = arrays[LOGITS].view(np.float32)
            return values[: values.size // vocab_size * vocab_size].reshape(-1, vocab_size)
    raise ArtifactError(f"there is no f32 output [R, {vocab_size}]", where=f"buffer {LOGITS}")


def _step_inputs(arrays: Mapping[str, Bytes], buffers: Iterable[Buffer]) -> dict[str, Array]:
    inputs = [b for b in buffers if b.kind is BufferKind.INPUT]
    for b in inputs:
        if b.name not in FIELDS or b.dtype is not DType.I32:
            raise ArtifactError("not an input of a step", where=f"buffer {b.name}")
    return {b.name: arrays[b.name].view(np.int32) for b in inputs}
