"""Which dtype an operation on mixed operands computes in: PyTorch's rules, on our dtypes.

Source: torch.result_type. Tensors with axes decide before tensors without, and those before Python scalars; a
lower rank only matters when it is of a higher category (bool < integer < float).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import reduce

from compiler.ir import DType, is_float


class Rank(IntEnum):
    """How much a say an operand has."""

    SCALAR = 0
    ZERO_DIM = 1
    DIMENSIONED = 2


DEFAULT_FLOAT = DType.F32
_ORDER = (DType.BOOL, DType.I32, DType.F16, DType.BF16, DType.F32)


def promote_types(a: DType, b: DType) -> DType:
    """The smallest dtype that both convert to; f16 with bf16 gives f32, as neither holds the other."""
    if {a, b} == {DType.F16, DType.BF16}:
        return DType.F32
    return max(a, b, key=_ORDER.index)


def result_dtype(operands: Iterable[tuple[DType, Rank]]) -> DType:
    """The dtype of an elementwise operation on `operands`; a scalar's dtype is `scalar_dtype` of it."""
    by_rank: dict[Rank, list[DType]] = {}
    for dtype, rank in operands:
        by_rank.setdefault(rank, []).append(dtype)
    merged = [reduce(promote_types, by_rank[rank]) for rank in sorted(by_rank)]
    return reduce(lambda lower, higher: _override(higher, lower), merged)


def scalar_dtype(value: float | int | bool) -> DType:
    if isinstance(value, bool):
        return DType.BOOL
    return DType.I32 if isinstance(value, int) else DEFAULT_FLOAT


def _override(higher: DType, lower: DType) -> DType:
    if is_float(higher):
        return higher
    if higher is DType.BOOL or is_float(lower):
        return promote_types(higher, lower)
    return higher
