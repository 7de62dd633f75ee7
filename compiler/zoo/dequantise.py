"""Numbers out of stored bytes: block formats to float32, float32 to bfloat16. Vectorised, bit-exact to ggml.

Arrays of bfloat16 are `uint16` that hold the upper half of a float32. Source: ggml's `dequantize_row_*`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
F32 = NDArray[np.float32]
U16 = NDArray[np.uint16]
U8 = NDArray[np.uint8]


def dequantise(data: U8, dtype: str, shape: tuple[int, ...]) -> F32:
    """Decode the bytes of a tensor of `dtype` (F32, F16, BF16, Q8_0, Q4_0, Q4_1) to float32 of `shape`."""
    decoded = _DECODERS[dtype](data)
    return decoded.reshape(shape)


def to_bf16(values: F32) -> U16:
    """Round to the nearest bfloat16, ties to even; NaN stays NaN (quiet), too large becomes infinity."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return np.where(is_nan, quiet, rounded).astype(np.uint16)


def from_bf16(bits: U16) -> F32:
    """Widen bfloat16 to float32; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _f32(data: U8) -> F32:
    return data.view("<f4").astype(np.float32)


def _f16(data: U8) -> F32:
    return data.view("<f2").astype(np.float32)


def _bf16(data: U8) -> F32:
    return from_bf16(data.view("<u2"))


def _q8_0(data: U8) -> F32:
    """34 bytes a block: f16 scale, 32 signed bytes."""
    blocks = data.reshape(-1, 2 + BLOCK)
    return _scale(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _q4_0(data: U8) -> F32:
    """18 bytes a block: f16 scale, 32 nibbles around 8."""
    blocks = data.reshape(-1, 2 + BLOCK // 2)
    return _scale(blocks, 0) * (_nibbles(blocks[:, 2:]) - np.float32(8))


def _q4_1(data: U8) -> F32:
    """20 bytes a block: f16 scale, f16 minimum, 32 nibbles."""
    blocks = data.reshape(-1, 4 + BLOCK // 2)
    return _scale(blocks, 0) * _nibbles(blocks[:, 4:]) + _scale(blocks, 2)


def _scale(blocks: U8, at: int) -> F32:
    """The f16 at byte `at` of each block, as a column."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibbles(packed: U8) -> F32:
    """Low nibbles are a block's first half, high nibbles its second."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=1).astype(np.float32)


_DECODERS: Mapping[str, Callable[[U8], F32]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
}
