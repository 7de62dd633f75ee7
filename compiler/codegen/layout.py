"""Packs weight matrices for the micro-kernels, and unpacks them again for tests.

A packed matrix is a row of panels, each of 64 output columns over all of K, one after the other.
`micro/packed.h` and `micro/packed_amx.h` read what is written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.artifact.layouts import PANEL, WeightLayout, packed_nbytes, panel_stride_bytes
from compiler.errors import CompilerError
from compiler.ir.dtype import bf16_to_f32, round_to_bf16

__all__ = ["PANEL", "LayoutError", "WeightLayout", "pack", "pack_chunks", "panel_stride_bytes", "unpack"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_GROUP = 16
_AMX_K = 32
_CHUNK_BYTES = 8 << 20


class LayoutError(CompilerError):
    """An array that cannot be packed this way."""

    code = "invalid_layout"


def pack(array: Array, layout: WeightLayout) -> Bytes:
    """The bytes of `array` in `layout`; N is padded to whole panels with zeros, K as the layout asks.

    `array` is [N, K], float32 or bfloat16 bits in uint16; float32 is rounded to nearest for a bf16 layout,
    bf16 widened for a float32 one. ROW_MAJOR takes any shape and keeps the element type.

    Raises:
        LayoutError: `array` is no matrix of those types.
    """
    chunks = list(pack_chunks(array, layout))
    return chunks[0] if len(chunks) == 1 else np.concatenate(chunks)


def pack_chunks(array: Array, layout: WeightLayout) -> Iterator[Bytes]:
    """What `pack` returns, a few panels at a time, so that a large matrix is never held twice.

    Raises:
        LayoutError: as `pack`.
    """
    if layout is WeightLayout.ROW_MAJOR:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return
    if array.ndim != 2 or array.dtype not in (np.float32, np.uint16) or 0 in array.shape:
        raise LayoutError(f"{layout} packs a float32 or bf16 [N, K], not {array.dtype} {list(array.shape)}")
    rows, k = array.shape
    step = PANEL * max(1, _CHUNK_BYTES // panel_stride_bytes(layout, k))
    for start in range(0, rows, step):
        yield _pack_panels(array[start : start + step], layout)


def unpack(data: Bytes, layout: WeightLayout, shape: tuple[int, int]) -> Array:
    """The [N, K] matrix that was packed into `data`: float32, or bf16 bits in uint16.

    Raises:
        LayoutError: `data` has not the size of such a matrix, or the layout is ROW_MAJOR.
    """
    rows, k = shape
    if layout is WeightLayout.ROW_MAJOR or data.nbytes != packed_nbytes(layout, rows, k):
        raise LayoutError(f"{data.nbytes} bytes are no {layout} matrix of {rows} x {k}")
    panels = -(-rows // PANEL)
    if layout is WeightLayout.PACKED_F32_64:
        columns: Array = data.view(np.float32).reshape(panels, k, PANEL).transpose(0, 2, 1)
    elif layout is WeightLayout.PACKED_BF16_64:
        columns = data.view(np.uint16).reshape(panels, -1, PANEL, 2).transpose(0, 2, 1, 3)
    else:
        tiles = data.view(np.uint16).reshape(panels, PANEL // _GROUP, -1, _AMX_K // 2, _GROUP, 2)
        columns = tiles.transpose(0, 1, 4, 2, 3, 5)
    return columns.reshape(panels * PANEL, -1)[:rows, :k].copy()


def _pack_panels(matrix: Array, layout: WeightLayout) -> Bytes:
    rows, k = matrix.shape
    panels = -(-rows // PANEL)
    if layout is WeightLayout.PACKED_F32_64:
        wide = _padded(_as_f32(matrix), panels * PANEL, k)
        ordered: Array = wide.reshape(panels, PANEL, k).transpose(0, 2, 1)
    elif layout is WeightLayout.PACKED_BF16_64:
        halves = _padded(_as_bf16(matrix), panels * PANEL, k + k % 2)
        ordered = halves.reshape(panels, PANEL, -1, 2).transpose(0, 2, 1, 3)
    else:
        halves = _padded(_as_bf16(matrix), panels * PANEL, -(-k // _AMX_K) * _AMX_K)
        tiles = halves.reshape(panels, PANEL // _GROUP, _GROUP, -1, _AMX_K // 2, 2)
        ordered = tiles.transpose(0, 1, 3, 4, 2, 5)
    return np.ascontiguousarray(ordered).reshape(-1).view(np.uint8)


def _padded(matrix: Array, rows: int, k: int) -> Array:
    if matrix.shape == (rows, k):
        return matrix
    wide = np.zeros((rows, k), dtype=matrix.dtype)
    wide[: matrix.shape[0], : matrix.shape[1]] = matrix
    return wide


def _as_f32(matrix: Array) -> Array:
    return bf16_to_f32(matrix) if matrix.dtype == np.uint16 else matrix


def _as_bf16(matrix: Array) -> Array:
    return matrix if matrix.dtype == np.uint16 else round_to_bf16(matrix)
