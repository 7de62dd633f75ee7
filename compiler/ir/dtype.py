"""Element types of a graph, and how NumPy holds them.

NumPy has no bfloat16: such arrays are stored as `uint16` bit patterns, and computed on in float32.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class DType(StrEnum):
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I32 = "i32"
    BOOL = "bool"


FLOATS = frozenset({DType.F32, DType.F16, DType.BF16})
HALVES = frozenset({DType.F16, DType.BF16})

_STORAGE: dict[DType, np.dtype[Any]] = {
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(np.uint16),
    DType.I32: np.dtype(np.int32),
    DType.BOOL: np.dtype(np.bool_),
}


def itemsize(dtype: DType) -> int:
    """Bytes of one stored element."""
    return _STORAGE[dtype].itemsize


def is_float(dtype: DType) -> bool:
    return dtype in FLOATS


def to_numpy_storage(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that holds elements of `dtype`; `uint16` bits for bf16."""
    return _STORAGE[dtype]


def round_to_bf16(values: Array) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16 bits: nearest, ties to even; a NaN stays a (quiet) NaN, infinities stay."""
    bits = np.asarray(values, dtype=np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x0040)
    result: npt.NDArray[np.uint16] = np.where(np.isnan(values), quiet, rounded).astype(np.uint16)
    return result


def bf16_to_f32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Widen bfloat16 bits to float32, exactly."""
    wide = np.asarray(bits, dtype=np.uint16, order="C").astype(np.uint32) << np.uint32(16)
    return np.asarray(wide).view(np.float32)
