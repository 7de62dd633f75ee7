"""L0 to L1: a view, a gather and a broadcast are only substitutions of indices.

`Lowering.lower(node, indices)` is the term of `node` at index terms. A bound axis takes the first pool name
of its
extent that is not free in the indices, so sibling reductions (max, sum and weighted sum of one softmax) share
one axis and interning shares their bodies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from compiler.ir.dim import Size, bounds, product
from compiler.ir.dtype import HALVES, DType
from compiler.ir.graph import Node
from compiler.ir.ops import LEAVES, REDUCTIONS, VIEWS, Op
from compiler.lower import terms as t
from compiler.lower.errors import LoweringError
from compiler.lower.indexing import (
    add_index,
    const_index,
    divide,
    flatten,
    interval,
    linear,
    multiply_index,
    scale_index,
    unflatten,
)
from compiler.lower.terms import Kind, Term

Indices: TypeAlias = tuple[Term, ...]

_UNARY = {Op.EXP2: Kind.EXP2, Op.LOG2: Kind.LOG2, Op.SIN: Kind.SIN, Op.SQRT: Kind.SQRT, Op.RECIP: Kind.RECIP}
_BINARY = {Op.ADD: Kind.ADD, Op.MUL: Kind.MUL, Op.MOD: Kind.MOD, Op.DIV: Kind.DIV, Op.LESS_THAN: Kind.LT}


@dataclass(slots=True)
class Lowering:
    """Lowers the nodes of one definition. `cuts` name the nodes that are read from a buffer instead.

    `extents` starts with the definition's own axes and gains every bound axis that lowering introduces.
    """

    cuts: Mapping[Node, str]
    extents: dict[str, Size]
    _memo: dict[tuple[Node, Indices], Term] = field(default_factory=dict)

    def lower(self, node: Node, indices: Indices, *, root: bool = False) -> Term:
        """The term of `node` at `indices`; `root` lowers a cut node's own body instead of a read of it."""
        if node in self.cuts and not root and node.op not in LEAVES:
            return self._read_cut(node, indices)
        key = (node, indices)
        if key not in self._memo:
            self._memo[key] = self._lower(node, indices)
        return self._memo[key]

    def asks(self, node: Node, indices: Indices) -> Iterator[tuple[Node, Indices]]:
        """What `node` at `indices` reads: each input with the indices it is read at."""
        op, inputs = node.op, node.inputs
        if op in LEAVES or op is Op.IOTA:
            return
        if op in VIEWS:
            yield inputs[0], self.through_view(node, indices)
        elif op is Op.GATHER:
            data, *coordinates = inputs
            rank = len(coordinates[0].shape)
            for c in coordinates:
                yield c, indices[:rank]
            picked = tuple(self.lower(c, indices[:rank]) for c in coordinates)
            yield data, picked + indices[rank:]
        elif op is Op.SCATTER:
            raise LoweringError("a scatter is always a definition of its own")
        elif op in REDUCTIONS:
            axis = cast(int, node.attr)
            bound = self._bound_axis(inputs[0].shape[axis], indices)
            yield inputs[0], (*indices[:axis], t.idx(bound), *indices[axis:])
        else:
            for x in inputs:
                yield x, indices

    def through_view(self, node: Node, indices: Indices) -> Indices:
        """The indices at which a view reads its input."""
        source = node.inputs[0].shape
        match node.op:
            case Op.PERMUTE:
                axes = cast(tuple[int, ...], node.attr)
                out = list(indices)
                for d, axis in enumerate(axes):
                    out[axis] = indices[d]
                return tuple(out)
            case Op.EXPAND:
                at = cast(int, node.attr)
                return (*indices[:at], *indices[at + 1 :])
            case Op.SLICE:
                axis, start, step = cast(tuple[int, Size, int], node.attr)
                moved = add_index(scale_index(indices[axis], step), const_index(start))
                return (*indices[:axis], moved, *indices[axis + 1 :])
            case Op.RESHAPE:
                return tuple(reshape_indices(indices, node.shape, source, self.extents))
        raise LoweringError(f"{node.op} is not a view")

    def _read_cut(self, node: Node, indices: Indices) -> Term:
        """A read of a definition; a scatter is read where its destination lies."""
        if node.op is not Op.SCATTER:
            return t.load(self.cuts[node], indices, node.dtype)
        place = self.lower(node.inputs[0], indices)
        if place.kind is not Kind.LOAD:
            raise LoweringError("a scatter's destination must be a buffer or a view of one")
        return t.load(self.cuts[node], place.args, node.dtype)

    def _bound_axis(self, extent: Size, indices: Indices) -> str:
        used = frozenset().union(*(i.free for i in indices)) if indices else frozenset()
        j = 0
        while (name := f"r{extent}.{j}") in used:
            j += 1
        self.extents[name] = extent
        return name

    def _lower(self, node: Node, indices: Indices) -> Term:
        op = node.op
        if op is Op.INPUT:
            return t.load(input_buffer(node), indices, node.dtype)
        if op is Op.WEIGHT:
            return t.load(weight_buffer(node), indices, node.dtype)
        if op is Op.CONST:
            is_half = node.dtype in HALVES
            value = t.num(cast(t.Number, node.attr), DType.F32 if is_half else node.dtype)
            return t.cast_to(value, node.dtype)
        if op is Op.IOTA:
            return indices[0]
        asked = list(self.asks(node, indices))
        if op in VIEWS:
            return self.lower(*asked[0])
        if op is Op.GATHER:
            return self.lower(*asked[-1])
        args = [self.lower(n, ix) for n, ix in asked]
        if op in REDUCTIONS:
            axis = cast(int, node.attr)
            bound = t.axis_of(asked[0][1][axis])
            return self._counted(op, bound, args[0]) or self._reduction(op, bound, args[0])
        if node.dtype is DType.I32 and op is not Op.CAST:
            return self._integer(op, args)
        return self._pointwise(op, args, node.dtype)

    def _reduction(self, op: Op, axis: str, body: Term) -> Term:
        """Half floats are reduced in f32 and rounded once."""
        wide = t.cast_to(body, DType.F32) if body.dtype in HALVES else body
        return t.cast_to(t.reduction(Kind.SUM if op is Op.SUM else Kind.MAX, axis, wide), body.dtype)

    def _counted(self, op: Op, axis: str, body: Term) -> Term | None:
        """The sum of one integer along an axis: the product with its length, where i32 holds that."""
        if op is Op.SUM and body.kind is Kind.NUM and body.dtype is DType.I32:
            total = self.extents[axis] * cast(Size, body.attr)
            low, high = bounds(total)
            if low >= -(2**31) and high < 2**31:
                return const_index(total)
        return None

    def _pointwise(self, op: Op, args: list[Term], dtype: DType) -> Term:
        """Half floats are computed in f32 and rounded once an operation."""
        if op is not Op.CAST and any(a.dtype in HALVES for a in args):
            wide = [t.cast_to(a, DType.F32) if a.dtype in HALVES else a for a in args]
            return t.cast_to(self._pointwise(op, wide, DType.F32 if dtype in HALVES else dtype), dtype)
        if op in _UNARY:
            return t.unary(_UNARY[op], args[0])
        if op in _BINARY:
            return t.binary(_BINARY[op], args[0], args[1])
        if op is Op.SELECT:
            return t.select(args[0], args[1], args[2])
        if op is Op.CAST:
            return t.cast_to(args[0], dtype)
        raise LoweringError(f"no index term for {op} of {dtype}")

    def _integer(self, op: Op, args: list[Term]) -> Term:
        if op is Op.ADD:
            return add_index(args[0], args[1])
        if op is Op.MUL:
            return multiply_index(args[0], args[1])
        if op is Op.SELECT:
            return t.select(args[0], args[1], args[2])
        divisor = linear(args[1])
        constant = divisor.constant if not divisor.coefficients else None
        if op is Op.FLOOR_DIV and constant is not None:
            return divide(args[0], constant, self.extents)[0]
        if op is Op.MOD and constant is not None:
            low, _ = interval(linear(args[0]), self.extents)
            if low is not None and low >= 0 and bounds(constant)[0] > 0:
                return divide(args[0], constant, self.extents)[1]
        kind = {Op.FLOOR_DIV: Kind.FLOOR_DIV, Op.MOD: Kind.MOD}.get(op)
        if kind is None:
            raise LoweringError(f"no index term for integer {op}")
        return t.make(kind, (args[0], args[1]), DType.I32)


def input_buffer(node: Node) -> str:
    """Buffer id of an input: names are labels, so each kind has a prefix of its own (pitfall C23)."""
    return f"in:{node.attr}"


def weight_buffer(node: Node) -> str:
    return f"w:{node.attr}"


def reshape_indices(
    indices: Indices, shape: tuple[Size, ...], source: tuple[Size, ...], extents: Mapping[str, Size]
) -> list[Term]:
    """Indices in `source` of a reshaped view's `indices`; runs of axes that match are handled apart."""
    out: list[Term] = []
    for new, old in _matching_runs(shape, source):
        position = flatten(indices[new.start : new.stop], shape[new.start : new.stop])
        sizes = source[old.start : old.stop]
        if sizes:
            out.extend(unflatten(position, sizes, extents))
    return out


def _matching_runs(a: tuple[Size, ...], b: tuple[Size, ...]) -> Iterator[tuple[range, range]]:
    """Split two shapes of one size into the shortest runs of axes with equal products."""
    i = j = 0
    while i < len(a) or j < len(b):
        for di, dj in _steps(len(a) - i, len(b) - j):
            if product(a[i : i + di]) == product(b[j : j + dj]):
                break
        else:
            raise LoweringError(f"cannot reshape {b} to {a}")
        yield range(i, i + di), range(j, j + dj)
        i, j = i + di, j + dj


def _steps(left: int, right: int) -> Iterator[tuple[int, int]]:
    """Lengths of a pair of runs, shortest together first; at least one axis is taken."""
    for total in range(1, left + right + 1):
        for di in range(min(left, total) + 1):
            if total - di <= right:
                yield di, total - di
