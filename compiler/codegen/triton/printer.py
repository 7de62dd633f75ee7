"""Prints tile programs as Triton functions: parallel loops are program ids, tiled axes padded masked blocks.

A function takes its buffers (weights row-major), then every size of the program as an int32. It uses no name
of a model and nothing but `tl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from compiler.codegen.triton.expressions import POINTER_TYPES, Frame, Point, number
from compiler.codegen.triton.lanes import lane_counts
from compiler.codegen.triton.visits import loop_visits
from compiler.ir.dim import Size
from compiler.ir.dtype import HALVES, DType
from compiler.lower.terms import Kind, Term, cast_to, load, topological
from compiler.lower.tiles import (
    Compute,
    Copy,
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
    statements,
)

HEADER = "import triton\nimport triton.language as tl\n\n\n"


@dataclass(frozen=True, slots=True)
class GridAxis:
    """A parallel loop: `ceil(extent / block)` programs. The grid is the product of all, the last fastest."""

    extent: Size
    block: int


def print_triton(name: str, kernel: Kernel, dims: Sequence[str], precision: str = "ieee") -> str:
    """The source of a module with one `@triton.jit` function.

    `dims` is the order of the program's size symbols; `precision` that of products: "ieee" or "tf32".
    """
    return _Printer(kernel, dims, precision).module(name)


def kernel_signature(kernel: Kernel, dims: Sequence[str]) -> dict[str, str]:
    """Name -> Triton type of each argument, in order."""
    buffers = {p.buffer: POINTER_TYPES[p.dtype] for p in kernel.params}
    return buffers | {f"D_{d}": "i32" for d in dims}


def kernel_grid(kernel: Kernel) -> tuple[GridAxis, ...]:
    """The parallel loops, outermost first."""
    found: list[GridAxis] = []
    body = kernel.body
    while len(found) < kernel.parallel:
        loop = body[-1]
        assert isinstance(loop, Loop), "a parallel loop ends its body"
        found.append(GridAxis(kernel.extents[loop.axis], loop.block))
        body = loop.body
    return tuple(found)


@dataclass(slots=True)
class _Printer:
    kernel: Kernel
    dims: Sequence[str]
    precision: str
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    halves: dict[str, DType] = field(default_factory=dict)
    frame: Frame = field(init=False)

    def __post_init__(self) -> None:
        looped = frozenset(loop.axis for loop in loops(self.kernel.body))
        self.frame = Frame(self.kernel, lane_counts(self.kernel), self.put, looped)

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    # Frame

    def module(self, name: str) -> str:
        for axis, block in self.kernel.blocks.items():
            if axis not in self.frame.looped:
                self._lanes(axis, "", str(block), is_masked=self.frame.lanes[axis] != block)
        self._programs(self.kernel.body)
        arguments = ", ".join(kernel_signature(self.kernel, self.dims))
        body = "\n".join(self.lines)
        return f"{HEADER}@triton.jit\ndef {name}({arguments}):\n{body}\n"

    def _programs(self, body: tuple[Statement | Loop, ...]) -> None:
        """Decode the program id; statements between the parallel loops are repeated by every program."""
        found: list[Loop] = []
        between: list[Statement] = []
        while len(found) < self.kernel.parallel:
            *before, last = body
            assert isinstance(last, Loop), "a parallel loop ends its body"
            between.extend(s for s in before if not isinstance(s, Loop))
            found.append(last)
            body = last.body
        if found:
            self.put("pid = tl.program_id(0)")
        for i, loop in enumerate(reversed(found)):
            extent, step = self._size(self.kernel.extents[loop.axis]), _times(loop.block)
            if i < len(found) - 1:
                tiles = self._tile_count(loop)
                self.put(f"{loop.axis}_b = pid % {tiles}{step}")
                self.put(f"pid = pid // {tiles}")
            else:
                self.put(f"{loop.axis}_b = pid{step}")
            self._tile_lanes(loop.axis, loop.block, extent)
        self._body((*between, *body))

    def _tile_count(self, loop: Loop) -> str:
        extent = self.kernel.extents[loop.axis]
        if isinstance(extent, int):
            return str(-(-extent // loop.block))
        if loop.block == 1:
            return self._size(extent)
        return self.frame.bind(f"({self._size(extent)} + {loop.block - 1}) // {loop.block}")

    def _tile_lanes(self, axis: str, block: int, end: str) -> None:
        """The lanes of a tile that starts at `{axis}_b`; `end` is where the axis ends."""
        extent = self.kernel.extents[axis]
        is_whole = isinstance(extent, int) and extent % block == 0 and end == str(extent)
        if self.frame.lanes[axis] == block:
            return self._lanes(axis, f"{axis}_b + ", end, is_masked=not is_whole)
        inside = f"{axis}_b + {block}"
        return self._lanes(
            axis, f"{axis}_b + ", inside if is_whole else f"tl.minimum({inside}, {end})", is_masked=True
        )

    def _lanes(self, axis: str, start: str, end: str, *, is_masked: bool) -> None:
        width = self.frame.lanes[axis]
        self.frame.masked.discard(axis)
        if width == 1:
            return
        self.put(f"{axis}_i = {start}tl.arange(0, {width})")
        if is_masked:
            self.frame.masked.add(axis)
            self.put(f"{axis}_m = {axis}_i < {end}")

    def _size(self, size: Size) -> str:
        return self._point(()).size(size)

    def _point(self, axes: tuple[str, ...]) -> Point:
        return Point(self.frame, axes)

    # Loops

    def _body(self, body: Sequence[Statement | Loop]) -> None:
        for item in body:
            if isinstance(item, Loop):
                self._loop(item)
            else:
                self._statement(item)

    def _loop(self, loop: Loop) -> None:
        a, b = loop.axis, loop.block
        self._hoist(loop)
        start, end = self._range(loop)
        self.put(f"for {a}_b in range({start}, {end}, {b}):")
        self.depth += 1
        self.frame.loaded.append({})
        self._tile_lanes(a, b, end)
        self._body(loop.body)
        self.frame.loaded.pop()
        self.depth -= 1

    def _range(self, loop: Loop) -> tuple[str, str]:
        """Where a loop starts, at a whole tile, and where it ends, exactly."""
        extent = self._size(self.kernel.extents[loop.axis])
        found = loop_visits(loop)
        uppers = found.uppers if loop.upper is None else (loop.upper,)
        lowers = found.lowers if loop.lower is None else ()
        start, end = "0", extent
        for upper in uppers:
            end = f"tl.minimum({end}, {self._extreme(upper, 'max', '0')})"
        for lower in lowers:
            start = f"tl.maximum({start}, {self._extreme(lower, 'min', extent)} + 1)"
        if loop.lower is not None:
            start = f"tl.maximum(0, {self._point(()).index(loop.lower)})"
        if start != "0":
            start = self.frame.bind(f"{start} // {loop.block} * {loop.block}")
        return start, self.frame.bind(end) if uppers else end

    def _extreme(self, index: Term, which: str, otherwise: str) -> str:
        """The largest or smallest value of an index over a tile; lanes outside it count as `otherwise`."""
        axes = tuple(a for a in self.kernel.blocks if a in index.free and self.frame.lanes[a] > 1)
        point = self._point(axes)
        text = point.index(index)
        mask = point.mask(axes)
        if mask:
            text = f"tl.where({mask}, {text}, {otherwise})"
        for _ in axes:
            text = f"tl.{which}({text}, axis=0)"
        return text

    def _hoist(self, loop: Loop) -> None:
        """Read what stays the same in a loop before it."""
        inside = {loop.axis, *(inner.axis for inner in loops(loop.body))}
        for s in statements(loop.body):
            for axes, root in _read_by(s):
                for term in topological([root]):
                    if term.kind is Kind.LOAD and not term.free & inside:
                        self._point(axes).load(term)

    # Statements

    def _statement(self, s: Statement) -> None:
        match s:
            case Fill():
                shape = self._point(s.tile.axes).shape()
                self.put(f"{s.tile.name} = tl.full({shape}, {number(s.value)}, tl.float32)")
            case Copy():
                self.put(f"{s.tile.name} = {s.source.name}")
            case Compute():
                self._compute(s)
            case Scale():
                self._assign(s.tile, f"{s.tile.name} * {self._point(s.tile.axes).value(s.expr)}")
            case Reduce():
                self._reduce(s)
            case Dot():
                self._dot(s)
            case Store():
                self._store(s)

    def _compute(self, s: Compute) -> None:
        """A value that was widened is kept as it was, too, under `{tile}_h`."""
        point, narrow = self._point(s.tile.axes), s.expr.args[0] if s.expr.kind is Kind.CAST else s.expr
        if narrow.dtype not in HALVES:
            return self._assign(s.tile, point.full(s.expr))
        self.halves[s.tile.name] = narrow.dtype
        self.put(f"{s.tile.name}_h = {point.full(narrow)}")
        return self._assign(s.tile, f"tl.cast({s.tile.name}_h, tl.float32)")

    def _assign(self, tile: Tile, text: str) -> None:
        self.put(f"{tile.name} = {text}")

    def _reduce(self, s: Reduce) -> None:
        is_max = s.kind is Kind.MAX
        part = self._folded(s, is_max=is_max)
        if s.accumulate:
            part = f"tl.maximum({s.tile.name}, {part})" if is_max else f"{s.tile.name} + {part}"
        self._assign(s.tile, part)

    def _folded(self, s: Reduce, *, is_max: bool) -> str:
        """`s.expr` reduced over its axis; lanes outside the axis count as the identity."""
        if self.frame.lanes[s.axis] == 1:
            return self._point(s.tile.axes).full(s.expr)
        point = self._point((*s.tile.axes, s.axis))
        value = point.full(s.expr)
        mask = point.mask([s.axis])
        if mask:
            value = f"tl.where({mask}, {value}, {number(float('-inf')) if is_max else '0.0'})"
        return f"tl.{'max' if is_max else 'sum'}({value}, axis={len(s.tile.axes)})"

    def _dot(self, s: Dot) -> None:
        if s.m is None:
            return self._row_product(s)
        half = self._half_of(s.a)
        is_half = half is not None and half is self._half_of(s.b)
        a = self._operand(s.a, (s.m, s.k), s.k, is_half=is_half)
        b = self._operand(s.b, (s.k, s.n), s.k, is_half=is_half)
        added = f", {s.tile.name}" if s.accumulate else ""
        return self._assign(s.tile, f'tl.dot({a}, {b}{added}, input_precision="{self.precision}")')

    def _row_product(self, s: Dot) -> None:
        """One row times a matrix, which is too low for `tl.dot`: a sum of scaled rows."""
        a = self._operand(s.a, (s.k,), s.k)
        b = self._operand(s.b, (s.k, s.n), s.k)
        added = f"{s.tile.name} + " if s.accumulate else ""
        self._assign(s.tile, f"{added}tl.sum({self.frame.bind(a)}[:, None] * {b}, axis=0)")

    def _half_of(self, operand: Operand) -> DType | None:
        """The 16-bit type that an operand was widened from: products of two such are exact either way."""
        found = self.halves.get(operand.name) if isinstance(operand, Tile) else operand.load.dtype
        return found if found in HALVES else None

    def _operand(self, operand: Operand, axes: tuple[str, ...], k: str, *, is_half: bool = False) -> str:
        """An operand over `axes`, 0 in lanes outside `k`, so that rubbish there meets no number."""
        point = self._point(axes)
        if not isinstance(operand, Tile):
            return point.full(operand.load if is_half else cast_to(operand.load, DType.F32))
        mask, name = point.mask([k]), f"{operand.name}_h" if is_half else operand.name
        return f"tl.where({mask}, {name}, 0.0)" if mask else name

    def _store(self, s: Store) -> None:
        point = self._point(s.axes)
        place: Term = load(s.buffer, s.indices, s.dtype)
        offset = point.spread(point.offset(place), place.free)
        inside = [text for text in [point.mask(s.axes)] if text]
        for index, limit in s.limits:
            at = self.frame.bind(point.index(index))
            inside.append(f"({at} >= 0) & ({at} < {point.size(limit)})")
        guard = f", mask={' & '.join(inside)}" if inside else ""
        self.put(f"tl.store({s.buffer} + {offset}, {point.full(s.expr)}{guard})")


def _times(block: int) -> str:
    return f" * {block}" if block > 1 else ""


def _read_by(s: Statement) -> Iterator[tuple[tuple[str, ...], Term]]:
    """The expressions of a statement, each with the axes that it is read over."""
    match s:
        case Dot():
            rows = () if s.m is None else (s.m,)
            for operand, axes in ((s.a, (*rows, s.k)), (s.b, (s.k, s.n))):
                if not isinstance(operand, Tile):
                    yield axes, operand.load
        case Compute() | Scale():
            yield s.tile.axes, s.expr
        case Reduce():
            yield (*s.tile.axes, s.axis), s.expr
        case Store():
            yield from ((s.axes, x) for x in (s.expr, *s.indices))
