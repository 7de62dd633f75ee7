"""Rotary position embedding: the tables' names, and the rotation of a head's two halves."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import arange, take
from compiler.ir import DType

COS = "rope.cos"
SIN = "rope.sin"


@dataclass(frozen=True, slots=True)
class Rotary:
    """cos and sin of each token's angles, f32 [tokens, head_dim / 2]."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, trace: Trace, positions: Tensor, head_dim: int, max_context: int) -> Rotary:
        """The rows of the tables `rope.cos` and `rope.sin` [max_context, head_dim / 2] at `positions`."""
        shape = (max_context, head_dim // 2)
        tables = (trace.weight(name, shape, DType.F32) for name in (COS, SIN))
        return cls(*(table[positions,] for table in tables))

    def __call__(self, x: Tensor) -> Tensor:
        """Rotate [tokens, heads, head_dim]: (a, b) halves to (a cos - b sin, b cos + a sin).

        The halves are an axis of their own, and the other half is that axis read at 1 - s: plain index
        arithmetic, whatever the layout. Source: RoFormer (arXiv 2104.09864), in the halves' order.
        """
        tokens, heads, head_dim = x.shape
        assert isinstance(head_dim, int), "a head has a fixed width"
        halves = x.reshape(tokens, heads, 2, head_dim // 2)
        side = arange(x.builder, 2)
        other = take(halves, 1 - side, axis=2)
        sign = (side.cast(DType.F32) * 2 - 1).reshape(2, 1)
        cos, sin = (table.reshape(tokens, 1, 1, head_dim // 2) for table in (self.cos, self.sin))
        return (halves * cos + other * sign * sin).reshape(tokens, heads, head_dim)
