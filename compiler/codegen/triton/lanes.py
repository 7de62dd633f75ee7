"""How wide each axis is in Triton: powers of two, and at least 16 on every side of a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from compiler.lower.terms import topological
from compiler.lower.tiles import Dot, Kernel, Reduce, Statement, Store, Tile, statements

DOT_SIDE = 16
"""The least that each side of `tl.dot` may have."""


def lane_counts(kernel: Kernel) -> dict[str, int]:
    """Lanes per axis. Those past an axis's block or extent are masked."""
    lanes = {axis: _power_of_two(block) for axis, block in kernel.blocks.items()}
    for s in statements(kernel.body):
        if isinstance(s, Dot) and s.m is not None:
            for axis in (s.m, s.n, s.k):
                lanes[axis] = max(lanes[axis], DOT_SIDE)
    return lanes


def largest_value(kernel: Kernel, lanes: Mapping[str, int]) -> int:
    """Elements of the largest tensor that any statement computes."""
    return max(
        (prod(lanes[a] for a in axes) for s in statements(kernel.body) for axes in _shapes(s)), default=1
    )


def _shapes(s: Statement) -> Sequence[Sequence[str]]:
    match s:
        case Dot():
            rows = () if s.m is None else (s.m,)
            return ((*rows, s.k), (s.k, s.n), (*rows, s.n))
        case Reduce():
            inside = [a for a in s.tile.axes if any(a in t.free for t in topological([s.expr]))]
            return ((*inside, s.axis), s.tile.axes)
        case Store():
            return (s.axes,)
        case _:
            assert isinstance(s.tile, Tile)
            return (s.tile.axes,)


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
