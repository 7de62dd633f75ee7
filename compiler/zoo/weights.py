"""A checkpoint's tensors as lazily read arrays, under Hugging Face's names and in Hugging Face's row order.

Files are mapped, not loaded: a tensor costs memory only while the caller holds what was read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from compiler.checkpoint import CheckpointInfo, TensorLocation
from compiler.zoo.dequantise import F32, U8, U16, dequantise, from_bf16, to_bf16

_CHUNK_BYTES = 64 << 10
_NUMPY_DTYPES: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as stored: `dtype` is F32, F16 or BF16 (`data` is then uint16), else a block type.

    Of a block type `data` is uint8 of shape [rows, bytes a row] and `shape` is the logical shape.
    """

    data: NDArray[np.generic]
    dtype: str
    shape: tuple[int, ...]


class Weights(Mapping[str, RawTensor]):
    """The open checkpoint: a mapping from name to `RawTensor`, and readers that convert.

    Use as a context manager or call `close`; arrays from `raw` views stay valid after that.
    """

    def __init__(self, info: CheckpointInfo) -> None:
        self._tensors = info.tensors
        self._files: dict[Path, U8] = {path: np.memmap(path, dtype=np.uint8, mode="r") for path in info.files}

    def __enter__(self) -> Weights:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, name: str) -> RawTensor:
        """The tensor as stored, a view of the mapped file unless rows had to be put back in order."""
        location = self._tensors[name]
        data = _bytes(self._files[location.file], location)
        if location.dtype in _NUMPY_DTYPES:
            stored: NDArray[np.generic] = data.view(_NUMPY_DTYPES[location.dtype]).reshape(location.shape)
        else:
            stored = data.reshape(*location.shape[:-1], -1)
        return RawTensor(_in_order(stored, location.interleaved_heads), location.dtype, location.shape)

    def f32(self, name: str) -> F32:
        """The tensor as float32, dequantised; a new array."""
        raw = self[name]
        flat = np.ascontiguousarray(raw.data).reshape(-1).view(np.uint8)
        return dequantise(flat, raw.dtype, raw.shape)

    def bf16(self, name: str) -> U16:
        """The tensor rounded to bfloat16 (nearest, ties to even), as uint16; a new array.

        Exact for a tensor that is stored as BF16. Works through the tensor in chunks of rows.
        """
        raw = self[name]
        if raw.dtype == "BF16":
            return np.array(raw.data, dtype=np.uint16)
        result = np.empty(raw.shape, dtype=np.uint16)
        row_bytes = max(raw.data[:1].nbytes, 1)
        step = max(_CHUNK_BYTES // row_bytes, 1)
        for start in range(0, raw.shape[0] if raw.shape else 1, step):
            part = np.ascontiguousarray(raw.data[start : start + step])
            shape = (part.shape[0], *raw.shape[1:])
            values = dequantise(part.reshape(-1).view(np.uint8), raw.dtype, shape)
            result[start : start + step] = to_bf16(values)
        return result

    def close(self) -> None:
        """Let go of the files; the mappings end when no array uses them any more."""
        self._files.clear()


def open_weights(info: CheckpointInfo) -> Weights:
    """Map the files of an inspected checkpoint. Reads nothing yet.

    Raises:
        OSError: a file went away since it was inspected.
    """
    return Weights(info)


def _bytes(file: U8, location: TensorLocation) -> U8:
    """The tensor's bytes as a plain view; a copy where the file does not align them for its elements."""
    data = np.asarray(file[location.offset : location.offset + location.nbytes])
    return data if location.offset % 4 == 0 or location.dtype not in _NUMPY_DTYPES else data.copy()


def _in_order(stored: NDArray[np.generic], heads: int) -> NDArray[np.generic]:
    """Rows of each head as two halves instead of interleaved pairs (a copy), when `heads` asks."""
    if heads == 0:
        return stored
    rows = stored.shape[0]
    pairs = stored.reshape(heads, rows // heads // 2, 2, *stored.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(stored.shape)


__all__ = ["RawTensor", "Weights", "from_bf16", "open_weights", "to_bf16"]
