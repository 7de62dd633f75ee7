"""The cost model: seconds predicted from a tile program alone. It proposes; measurement decides.

Counts work per statement times the trips of the loops around it, shared among threads, plus the bytes that
must come
from memory. Rates are those of a typical AVX-512 core; only their ratios matter for ranking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from compiler.ir.dim import bind
from compiler.ir.dtype import itemsize
from compiler.lower.terms import Kind, Term, buffer_of, topological
from compiler.lower.tiles import (
    Compute,
    Copy,
    Direct,
    Dot,
    Fill,
    Kernel,
    Loop,
    Packed,
    Reduce,
    Scale,
    Statement,
    Store,
)

_BOUNDED = 0.55
"""Share of a loop with a derived upper bound that is visited on average."""


@dataclass(frozen=True, slots=True)
class Rates:
    """What one core does in a second, and what all cores read from memory together."""

    multiply_adds: float = 30e9
    row_overhead: float = 2e9  # dot rows of one vector: loop and broadcast work that few rows do not amortise
    pointwise: float = 4e9
    transcendental: float = 1e9
    statement: float = 40e6  # entries into a statement
    memory_bytes: float = 20e9
    cache_bytes: float = 40e9


@dataclass(slots=True)
class Work:
    """What a kernel does, in elementary units; `traffic` is bytes of each buffer read or written, with
    repeats.
    """

    multiply_adds: float = 0.0
    pointwise: float = 0.0
    transcendental: float = 0.0
    statements: float = 0.0
    cache_bytes: float = 0.0


def predicted_seconds(kernel: Kernel, dims: Mapping[str, int], threads: int, rates: Rates = Rates()) -> float:
    """Seconds of one launch, without the barrier after it."""
    work = Work()
    _walk(kernel, kernel.body, dims, 1.0, work)
    items = 1.0
    for loop in _parallel_loops(kernel):
        items *= ceil(bind(kernel.extents[loop.axis], dims) / loop.block)
    share = ceil(items / threads) / max(items, 1.0) if kernel.parallel else 1.0
    compute = (
        work.multiply_adds / rates.multiply_adds
        + work.pointwise / rates.pointwise
        + work.transcendental / rates.transcendental
        + work.statements / rates.statement
        + work.cache_bytes / rates.cache_bytes
    )
    return max(compute * share, _memory_bytes(kernel, dims) / rates.memory_bytes)


def _parallel_loops(kernel: Kernel) -> list[Loop]:
    found: list[Loop] = []
    body = kernel.body
    while len(found) < kernel.parallel:
        loop = body[-1]
        assert isinstance(loop, Loop)
        found.append(loop)
        body = loop.body
    return found


def _memory_bytes(kernel: Kernel, dims: Mapping[str, int]) -> float:
    """Bytes of weights, once each: what no cache can save. A table that is gathered from is not
    read whole.
    """
    dotted = {buffer_of(s.b.load) for s in _dots(kernel.body) if isinstance(s.b, Packed | Direct)}
    total = 0.0
    for p in kernel.params:
        if p.buffer in dotted and all(isinstance(size, int) for size in p.shape):
            elements = 1
            for size in p.shape:
                elements *= bind(size, dims)
            total += elements * itemsize(p.dtype)
    return total


def _dots(body: tuple[Statement | Loop, ...]) -> list[Dot]:
    found: list[Dot] = []
    for item in body:
        if isinstance(item, Loop):
            found.extend(_dots(item.body))
        elif isinstance(item, Dot):
            found.append(item)
    return found


def _walk(
    kernel: Kernel, body: tuple[Statement | Loop, ...], dims: Mapping[str, int], times: float, work: Work
) -> None:
    for item in body:
        if isinstance(item, Loop):
            extent = bind(kernel.extents[item.axis], dims)
            trips = ceil(extent / item.block) * (_BOUNDED if item.upper is not None else 1.0)
            _walk(kernel, item.body, dims, times * max(trips, 1.0), work)
        else:
            _statement(kernel, item, dims, times, work)


def _statement(kernel: Kernel, s: Statement, dims: Mapping[str, int], times: float, work: Work) -> None:
    def points(axes: tuple[str, ...]) -> float:
        total = 1.0
        for a in axes:
            total *= min(kernel.blocks[a], bind(kernel.extents[a], dims))
        return total

    work.statements += times
    match s:
        case Fill() | Copy():
            work.pointwise += times * points(s.tile.axes)
        case Compute() | Scale():
            _expression(s.expr, times * points(s.tile.axes), work)
        case Reduce():
            _expression(s.expr, times * points((*s.tile.axes, s.axis)), work)
            work.pointwise += times * points(s.tile.axes) * 8
        case Store():
            _expression(s.expr, times * points(s.axes), work)
        case Dot():
            rows = points((s.m,)) if s.m is not None else 1.0
            columns, depth = points((s.n,)), points((s.k,))
            along_k = isinstance(s.b, Direct) and s.b.col_stride != 1  # rows of B meet rows of A: no reuse
            work.multiply_adds += (
                times * rows * columns * depth * (1.0 + 1.5 / rows) * (3.0 if along_k else 1.0)
            )
            work.cache_bytes += times * columns * depth * 2


def _expression(expr: Term, points: float, work: Work) -> None:
    for term in topological([expr]):
        if term.kind in (Kind.EXP2, Kind.LOG2, Kind.SIN, Kind.SQRT, Kind.RECIP, Kind.DIV):
            work.transcendental += points
        elif term.args:
            work.pointwise += points
