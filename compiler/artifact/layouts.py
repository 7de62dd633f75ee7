"""How weights lie in memory: the names that artifact, packer and kernels share, and the sizes they imply."""

from __future__ import annotations

from enum import StrEnum

from compiler.ir.dtype import DType

PANEL = 64
"""Output columns of a packed panel."""


class WeightLayout(StrEnum):
    ROW_MAJOR = "row_major"
    """As NumPy holds it."""
    PACKED_BF16_64 = "packed_bf16_64"
    """Panels [ceil(K / 2)][64][2] of bf16."""
    PACKED_F32_64 = "packed_f32_64"
    """Panels [K][64] of float32."""
    PACKED_AMX_64 = "packed_amx_64"
    """Panels [4][ceil(K / 32)][16][16][2] of bf16: tiles of 16 columns by 32 k."""


def panel_stride_bytes(layout: WeightLayout, k: int) -> int:
    """Bytes from one panel to the next. ROW_MAJOR has no panels."""
    match layout:
        case WeightLayout.PACKED_BF16_64:
            return (k + 1) // 2 * PANEL * 4
        case WeightLayout.PACKED_F32_64:
            return k * PANEL * 4
        case WeightLayout.PACKED_AMX_64:
            return -(-k // 32) * 32 * PANEL * 2
    raise ValueError(f"{layout} has no panels")


def packed_dtype(layout: WeightLayout) -> DType | None:
    """The element type that a packed layout fixes; none for ROW_MAJOR."""
    match layout:
        case WeightLayout.ROW_MAJOR:
            return None
        case WeightLayout.PACKED_F32_64:
            return DType.F32
        case WeightLayout.PACKED_BF16_64 | WeightLayout.PACKED_AMX_64:
            return DType.BF16


def packed_nbytes(layout: WeightLayout, rows: int, k: int) -> int:
    """Bytes of a packed [rows, k] matrix."""
    return -(-rows // PANEL) * panel_stride_bytes(layout, k)
