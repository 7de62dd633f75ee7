"""The float64 interpreter of index terms: the gate's oracle. Products under a sum are contracted, never
built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from compiler.ir.dim import Size, bind
from compiler.ir.dtype import DType, bf16_to_f32, is_float, round_to_bf16
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of, buffer_of, products, topological

Array = npt.NDArray[Any]


def interpret(
    root: Term,
    axes: Sequence[str],
    extents: Mapping[str, Size],
    buffers: Mapping[str, Array],
    dims: Mapping[str, int],
    precision: type[np.floating[Any]] = np.float64,
    points: Mapping[str, Array] = MappingProxyType({}),
) -> Array:
    """The tensor of `root` over `axes`, computed in float64, or in float32 as a plain program would.

    Of an axis in `points` only those positions are computed.
    `buffers` hold storage arrays (uint16 bits for bf16). An index outside its buffer is clamped, as compiled
    programs may do. A bf16 or f16 cast rounds as the program's does.
    """
    order, sizes = _axes(root, axes, extents, dims, points)
    with np.errstate(all="ignore"):
        value = _Interpreter(order, sizes, buffers, dims, precision, points).value(root)
    return _over(value, axes, order, sizes)


def rounding(
    root: Term,
    axes: Sequence[str],
    extents: Mapping[str, Size],
    buffers: Mapping[str, Array],
    dims: Mapping[str, int],
    points: Mapping[str, Array] = MappingProxyType({}),
) -> Array:
    """By what rounding errors of a relative size of one would move `root`: the least that must be allowed.

    A sum's errors follow the magnitudes of its terms, however they cancel. Operations other than sums and
    products start anew from their own value. Source: running error analysis (Wilkinson).
    """
    order, sizes = _axes(root, axes, extents, dims, points)
    with np.errstate(all="ignore"):
        exact = _Interpreter(order, sizes, buffers, dims, np.float64, points)
        value = _Rounding(order, sizes, buffers, dims, np.float64, points, exact=exact).value(root)
    return _over(value, axes, order, sizes)


def _axes(
    root: Term,
    axes: Sequence[str],
    extents: Mapping[str, Size],
    dims: Mapping[str, int],
    points: Mapping[str, Array],
) -> tuple[list[str], dict[str, int]]:
    order = list(dict.fromkeys([*axes, *(a for x in topological([root]) for a in sorted(x.free))]))
    bound = [axis_of(x) for x in topological([root]) if x.kind in REDUCTIONS]
    order.extend(a for a in dict.fromkeys(bound) if a not in order)
    return order, {a: len(points[a]) if a in points else bind(extents[a], dims) for a in order}


def _over(value: Array, axes: Sequence[str], order: list[str], sizes: Mapping[str, int]) -> Array:
    shape = [sizes[a] if a in axes else 1 for a in order]
    full = np.broadcast_to(value, shape)
    moved = np.transpose(
        full, [order.index(a) for a in axes] + [i for i, a in enumerate(order) if a not in axes]
    )
    return moved.reshape([sizes[a] for a in axes])


@dataclass
class _Interpreter:
    """Every value has one dimension per axis of `order`, of size 1 where it does not vary."""

    order: list[str]
    sizes: Mapping[str, int]
    buffers: Mapping[str, Array]
    dims: Mapping[str, int]
    precision: type[np.floating[Any]]
    points: Mapping[str, Array] = field(default_factory=dict)
    _memo: dict[Term, Array] = field(default_factory=dict)

    def value(self, root: Term) -> Array:
        for term in topological([root]):
            if term not in self._memo and not self._is_only_a_factor(term):
                self._memo[term] = self._compute(term)
        return self._memo[root] if root in self._memo else self._compute(root)

    def _is_only_a_factor(self, term: Term) -> bool:
        return term.kind is Kind.MUL and term.dtype is not DType.I32

    def _get(self, term: Term) -> Array:
        if term not in self._memo:
            self._memo[term] = self._compute(term)
        return self._memo[term]

    def _compute(self, term: Term) -> Array:
        if term.kind in REDUCTIONS:
            return self._reduce(term)
        if term.kind is Kind.NUM:
            value = bind(cast(Size, term.attr), self.dims) if term.dtype is DType.I32 else term.attr
            return np.full((1,) * len(self.order), value, dtype=self._storage(term.dtype))
        if term.kind is Kind.IDX:
            shape = [1] * len(self.order)
            axis = axis_of(term)
            shape[self.order.index(axis)] = self.sizes[axis]
            at = self.points[axis] if axis in self.points else np.arange(self.sizes[axis], dtype=np.int64)
            return at.reshape(shape)
        args = [self._get(a) for a in term.args]
        if term.kind is Kind.LOAD:
            return self._load(term, args)
        return _pointwise(term, args, self._storage)

    def _storage(self, dtype: DType) -> type:
        if dtype is DType.I32:
            return np.int64
        return np.bool_ if dtype is DType.BOOL else self.precision

    def _load(self, term: Term, indices: list[Array]) -> Array:
        data = self.buffers[buffer_of(term)]
        if not indices:
            picked = data.reshape((1,) * len(self.order))
        else:
            clamped = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in zip(indices, data.shape, strict=True))
            picked = data[clamped]
        if term.dtype is DType.BF16:
            return bf16_to_f32(picked).astype(self.precision)
        return picked.astype(self._storage(term.dtype))

    def _reduce(self, term: Term) -> Array:
        axis, body = axis_of(term), term.args[0]
        at, n = self.order.index(axis), self.sizes[axis]
        if term.kind is Kind.MAX:
            full = self._spread(self._get(body), at, n)
            if n == 0:
                return np.full([1 if i == at else k for i, k in enumerate(full.shape)], -np.inf)
            return cast(Array, full.max(axis=at, keepdims=True))
        return self._contract([self._get(f) for f in products(body)], at, n)

    def _spread(self, value: Array, at: int, n: int) -> Array:
        shape = list(value.shape)
        shape[at] = n
        return np.broadcast_to(value, shape)

    def _contract(self, factors: list[Array], at: int, n: int) -> Array:
        operands: list[Any] = []
        live: set[int] = set()
        for f in factors:
            dims = [i for i in range(len(self.order)) if f.shape[i] > 1]
            operands += [f.reshape([f.shape[i] for i in dims]), dims]
            live |= set(dims)
        if at not in live:
            operands += [np.ones(n, self.precision), [at]]
        kept = sorted(live - {at})
        out = np.einsum(*operands, kept, optimize=True)
        sizes = iter(out.shape)
        return cast(Array, out.reshape([next(sizes) if i in kept else 1 for i in range(len(self.order))]))


@dataclass
class _Rounding(_Interpreter):
    """Rounding errors of floats in units of one; `exact` knows the values."""

    exact: _Interpreter = field(kw_only=True)

    def _compute(self, term: Term) -> Array:
        if not is_float(term.dtype) or any(not is_float(a.dtype) for a in term.args[1:]):
            return self._anew(term)
        match term.kind:
            case Kind.SUM:
                return self._sum(term)
            case Kind.ADD:
                return self._get(term.args[0]) + self._get(term.args[1]) + self._anew(term)
            case Kind.MUL:
                one, other = term.args
                carried = self._get(one) * self._anew(other) + self._get(other) * self._anew(one)
                return cast(Array, carried + self._anew(term))
            case Kind.SELECT:
                condition, one, other = term.args
                return np.where(self.exact.value(condition), self._get(one), self._get(other))
            case Kind.LOAD | Kind.NUM:
                return np.zeros((1,) * len(self.order))
            case Kind.CAST if is_float(term.args[0].dtype):
                return self._get(term.args[0])
        return self._anew(term)

    def _anew(self, term: Term) -> Array:
        """As if it were rounded for the first time."""
        return np.abs(self.exact.value(term))

    def _sum(self, term: Term) -> Array:
        """Its own roundings follow its terms' magnitudes; each factor's error is carried by the others."""
        at = self.order.index(axis_of(term))
        factors = products(term.args[0])
        sizes, n = [self._anew(f) for f in factors], self.sizes[axis_of(term)]
        total = self._contract(sizes, at, n)
        for i, factor in enumerate(factors):
            error = self._get(factor)
            if error.any():
                total = total + self._contract([*sizes[:i], error, *sizes[i + 1 :]], at, n)
        return total


def _pointwise(term: Term, a: list[Array], storage: Callable[[DType], type]) -> Array:
    match term.kind:
        case Kind.EXP2:
            return np.exp2(a[0])
        case Kind.LOG2:
            return np.log2(a[0])
        case Kind.SIN:
            return np.sin(a[0])
        case Kind.SQRT:
            return np.sqrt(a[0])
        case Kind.RECIP:
            return np.reciprocal(a[0])
        case Kind.ADD:
            return a[0] + a[1]
        case Kind.MUL:
            return a[0] * a[1]
        case Kind.DIV:
            return a[0] / a[1]
        case Kind.MOD:
            return np.fmod(a[0], a[1])
        case Kind.LT:
            return a[0] < a[1]
        case Kind.FLOOR_DIV:
            return np.floor_divide(a[0], a[1])
        case Kind.FLOOR_MOD:
            return np.mod(a[0], a[1])
        case Kind.SELECT:
            return np.where(a[0], a[1], a[2])
        case Kind.CAST:
            return _cast(a[0], term.dtype, storage)
        case kind:
            raise AssertionError(f"{kind} has no value")


def _cast(x: Array, dtype: DType, storage: Callable[[DType], type]) -> Array:
    wide = storage(DType.F32)
    if dtype is DType.BF16:
        return bf16_to_f32(round_to_bf16(x.astype(np.float32))).astype(wide)
    if dtype is DType.F16:
        return x.astype(np.float16).astype(wide)
    return x.astype(storage(dtype))
