"""Where a tensor's bytes lie, and how many bits each element type takes in a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MAX_TENSORS = 200_000
MAX_RANK = 8
MAX_TENSOR_NAME = 1024

SAFETENSORS_BITS: Mapping[str, int] = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of one file: `offset` counts bytes from the start of the file, `shape` is row-major."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int


def byte_count(shape: tuple[int, ...], bits: int) -> int | None:
    """Bytes of a dense tensor; none when they do not fill whole bytes or pass 2^63."""
    total = bits
    for size in shape:
        total *= size
        if total >= 1 << 66:
            return None
    return total // 8 if total % 8 == 0 else None
