"""Runs tile programs in NumPy, statement by statement, in float64: what a printer's output must compute.

Stricter than compiled code: a read outside a buffer, a direct operand whose strides do not reach the elements
of its load, and a place stored twice are errors; a tile element that was never written is NaN. Counts what
loops visit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from compiler.ir.dim import Size, bind
from compiler.ir.dtype import DType, bf16_to_f32
from compiler.lower.indexing import flatten
from compiler.lower.interpret import _pointwise
from compiler.lower.terms import Kind, Term, axis_of, buffer_of, tile_of, topological
from compiler.lower.tiles import (
    Compute,
    Copy,
    Direct,
    Dot,
    Fill,
    Kernel,
    Loop,
    Operand,
    Reduce,
    Scale,
    Statement,
    Store,
    Tile,
    loops,
)

Array = npt.NDArray[Any]


@dataclass(slots=True)
class TileMachine:
    """One run of `kernel` over `buffers`; `stored` becomes what it wrote, NaN where it wrote nothing."""

    kernel: Kernel
    buffers: Mapping[str, Array]
    dims: Mapping[str, int]
    stored: Array = field(init=False)
    visited: Counter[str] = field(init=False, default_factory=Counter)
    points: dict[str, list[int]] = field(init=False, default_factory=dict)
    _tiles: dict[str, Array] = field(init=False, default_factory=dict)
    _at: dict[str, Array] = field(init=False, default_factory=dict)

    def run(self) -> Array:
        """Run it; the written buffer in float64."""
        (out,) = [p for p in self.kernel.params if p.is_written]
        self.stored = np.full(tuple(bind(s, self.dims) for s in out.shape), np.nan)
        looped = {loop.axis for loop in loops(self.kernel.body)}
        for axis, block in self.kernel.blocks.items():
            if axis not in looped:
                self._at[axis] = np.arange(block)
        with np.errstate(all="ignore"):
            self._body(self.kernel.body)
        return self.stored

    def _body(self, body: Sequence[Statement | Loop]) -> None:
        for item in body:
            if isinstance(item, Loop):
                self._loop(item)
            else:
                self._statement(item)

    def _loop(self, loop: Loop) -> None:
        extent = bind(self.kernel.extents[loop.axis], self.dims)
        end = extent if loop.upper is None else min(extent, self._scalar(loop.upper))
        start = 0 if loop.lower is None else max(0, self._scalar(loop.lower)) // loop.block * loop.block
        for base in range(start, end, loop.block):
            self._at[loop.axis] = np.arange(base, min(base + loop.block, end))
            self.visited[loop.axis] += 1
            self.points.setdefault(loop.axis, []).extend(self._at[loop.axis].tolist())
            self._body(loop.body)
        self._at.pop(loop.axis, None)

    def _scalar(self, term: Term) -> int:
        return int(self._value(term, ()).reshape(()))

    # Statements

    def _statement(self, s: Statement) -> None:
        match s:
            case Fill():
                self._tiles[s.tile.name] = np.full(self._blocks(s.tile), s.value)
            case Copy():
                self._tiles[s.tile.name] = self._tiles[s.source.name].copy()
            case Compute():
                self._new(s.tile)[self._part(s.tile)] = self._value(s.expr, s.tile.axes)
            case Scale():
                self._tiles[s.tile.name][self._part(s.tile)] *= self._value(s.expr, s.tile.axes)
            case Reduce():
                full = self._value(s.expr, (*s.tile.axes, s.axis))
                self._join(s.tile, s.kind, full.max(-1) if s.kind is Kind.MAX else full.sum(-1), s.accumulate)
            case Dot():
                m = () if s.m is None else (s.m,)
                a, b = self._operand(s.a, (*m, s.k)), self._operand(s.b, (s.k, s.n))
                self._join(s.tile, Kind.SUM, a @ b, s.accumulate)
            case Store():
                self._store(s)

    def _blocks(self, tile: Tile) -> tuple[int, ...]:
        return tuple(self.kernel.blocks[a] for a in tile.axes)

    def _new(self, tile: Tile) -> Array:
        self._tiles[tile.name] = np.full(self._blocks(tile), np.nan)
        return self._tiles[tile.name]

    def _part(self, tile: Tile) -> tuple[slice, ...]:
        """The part of a tile that the current points of its axes fill."""
        return tuple(slice(0, len(self._at[a])) for a in tile.axes)

    def _join(self, tile: Tile, kind: Kind, value: Array, accumulate: bool) -> None:
        part = self._part(tile)
        if not accumulate:
            self._new(tile)[part] = value
        elif kind is Kind.MAX:
            self._tiles[tile.name][part] = np.maximum(self._tiles[tile.name][part], value)
        else:
            self._tiles[tile.name][part] += value

    def _store(self, s: Store) -> None:
        value = self._value(s.expr, s.axes)
        shape = value.shape
        kept = np.ones(shape, dtype=bool)
        for coordinate, limit in s.limits:
            place = np.broadcast_to(self._value(coordinate, s.axes), shape)
            kept &= (place >= 0) & (place < bind(limit, self.dims))
        where = tuple(np.broadcast_to(self._value(i, s.axes), shape)[kept].astype(int) for i in s.indices)
        if where:
            flat = np.ravel_multi_index(where, self.stored.shape)
            assert len(np.unique(flat)) == flat.size, "one place is stored twice"
        assert np.isnan(self.stored[where]).all() or np.isnan(value).any(), "a place is stored again"
        self.stored[where] = value[kept] if where else value.reshape(())

    # Values

    def _operand(self, operand: Operand, axes: tuple[str, ...]) -> Array:
        if isinstance(operand, Tile):
            assert operand.axes == axes
            return self._tiles[operand.name][self._part(operand)]
        value = self._value(operand.load, axes)
        if isinstance(operand, Direct):
            self._check_strides(operand, axes)
        return value

    def _check_strides(self, d: Direct, axes: tuple[str, ...]) -> None:
        """Elements of a direct operand lie at its address plus strides, in runs of its grain."""
        shape = next(p.shape for p in self.kernel.params if p.buffer == buffer_of(d.load))
        flat = self._value(_flat(d.load, shape), axes).astype(int)
        rows, columns = (flat.shape if flat.ndim == 2 else (1, *flat.shape))[-2:]
        flat = flat.reshape(rows, columns)
        for i, j in self._runs(d, rows, columns):
            run = flat[i, j]
            steps = np.add.outer(
                np.arange(run.shape[0]) * d.row_stride, np.arange(run.shape[1]) * d.col_stride
            )
            assert (run == run[0, 0] + steps).all(), f"{d} does not reach its elements"

    def _runs(self, d: Direct, rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
        row_step = d.grain if d.grain_axis is not None and d.grain_axis == d.row else rows
        column_step = d.grain if d.grain_axis is not None and d.grain_axis == d.col else columns
        for i in range(0, rows, row_step):
            for j in range(0, columns, column_step):
                yield slice(i, min(i + row_step, rows)), slice(j, min(j + column_step, columns))

    def _value(self, root: Term, axes: Sequence[str]) -> Array:
        """An expression at every current point of `axes`, one dimension each."""
        memo: dict[Term, Array] = {}
        for term in topological([root]):
            memo[term] = self._one(term, [memo[a] for a in term.args], axes)
        return np.broadcast_to(memo[root], tuple(len(self._at[a]) for a in axes))

    def _one(self, term: Term, args: list[Array], axes: Sequence[str]) -> Array:
        match term.kind:
            case Kind.NUM:
                value = bind(cast(Size, term.attr), self.dims) if term.dtype is DType.I32 else term.attr
                return np.array(value)
            case Kind.IDX:
                return self._axis(axis_of(term), axes)
            case Kind.TILE:
                return self._tile(term, axes)
            case Kind.LOAD:
                return self._load(term, args)
        return np.asarray(_pointwise(term, args, _storage))

    def _axis(self, axis: str, axes: Sequence[str]) -> Array:
        at = self._at[axis]
        if axis not in axes:
            assert len(at) == 1, f"{axis} has {len(at)} points here"
            return at.reshape(())
        return at.reshape([-1 if a == axis else 1 for a in axes])

    def _tile(self, term: Term, axes: Sequence[str]) -> Array:
        name, own = tile_of(term)
        held = self._tiles[name][tuple(slice(0, len(self._at[a])) for a in own)]
        order = sorted(range(len(own)), key=lambda d: list(axes).index(own[d]))
        held = held.transpose(order)
        return held.reshape([len(self._at[a]) if a in own else 1 for a in axes])

    def _load(self, term: Term, indices: list[Array]) -> Array:
        data = self.buffers[buffer_of(term)]
        for i, n in zip(indices, data.shape, strict=True):
            assert (i >= 0).all(), f"{term!r} is read below 0"
            assert (i < n).all(), f"{term!r} is read beyond {n}"
        picked = data[tuple(i.astype(int) for i in indices)] if indices else data
        if term.dtype is DType.BF16:
            return bf16_to_f32(np.asarray(picked)).astype(np.float64)
        return np.asarray(picked).astype(_storage(term.dtype))


@cache
def _flat(load: Term, shape: tuple[Size, ...]) -> Term:
    return flatten(load.args, shape)


def _storage(dtype: DType) -> type:
    if dtype is DType.I32:
        return np.int64
    return np.bool_ if dtype is DType.BOOL else np.float64
