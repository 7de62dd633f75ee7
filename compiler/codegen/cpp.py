"""Prints tile programs as C++: loops, fixed-lane reductions, and calls of the level's micro-kernels.

Names of a model never reach the source: axes, buffers and tiles have generated names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from compiler.artifact.layouts import PANEL, WeightLayout, panel_stride_bytes
from compiler.codegen.cpp_expressions import C_TYPES, CExpressions
from compiler.ir.dim import Size, symbols
from compiler.ir.dtype import DType, itemsize
from compiler.lower.terms import Kind, load
from compiler.lower.tiles import (
    Compute,
    Copy,
    Direct,
    Dot,
    Fill,
    Kernel,
    Loop,
    Operand,
    Packed,
    Reduce,
    Scale,
    Statement,
    Store,
    Tile,
    loops,
)

_PACKED_DOT = {
    WeightLayout.PACKED_F32_64: "dot_packed_f32",
    WeightLayout.PACKED_BF16_64: "dot_packed_bf16",
    WeightLayout.PACKED_AMX_64: "dot_packed_bf16_amx",
}


def print_kernel(name: str, kernel: Kernel, dims: Sequence[str]) -> str:
    """The C++ function of a kernel. `dims` is the order of the program's size symbols."""
    return _Printer(kernel, dims).function(name)


@dataclass(slots=True)
class _Printer:
    kernel: Kernel
    dims: Sequence[str]
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    x: CExpressions = field(init=False)

    def __post_init__(self) -> None:
        self.x = CExpressions(self.kernel)

    # Frame

    def function(self, name: str) -> str:
        for i, p in enumerate(self.kernel.params):
            const = "" if p.is_written else "const "
            ctype = C_TYPES[p.dtype]
            self.put(f"{const}{ctype}* __restrict {p.buffer} = ({const}{ctype}*)bufs[{i}];")
        used = {s.name for size in self._sizes() for s in symbols(size)}
        for i, d in enumerate(self.dims):
            if d in used:
                self.put(f"const int64_t D_{d} = dims[{i}];")
        offset = 0
        for tile in self.kernel.tiles():
            self.put(f"float* __restrict {tile.name} = (float*)(scratch + {offset});")
            offset += -(-self.kernel.tile_elements(tile) * 4 // 64) * 64
        looped = {loop.axis for loop in loops(self.kernel.body)}
        for axis, block in self.kernel.blocks.items():
            if axis not in looped:
                self.put(f"const int64_t {axis}_b = 0, {axis}_n = {block};")
                self.put(f"(void){axis}_b; (void){axis}_n;")
        self._parallel(self.kernel.body, self.kernel.parallel)
        body = "\n".join(self.lines)
        return f"CANDELA_KERNEL({name}) {{\n{body}\n}}\n"

    def _sizes(self) -> Iterable[Size]:
        for p in self.kernel.params:
            yield from p.shape
        yield from self.kernel.extents.values()

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    # Loops

    def _parallel(self, body: tuple[Statement | Loop, ...], count: int) -> None:
        """Flatten the first `count` loops; statements between them are repeated by every work item."""
        flattened: list[Loop] = []
        between: list[Statement] = []
        rest = body
        while len(flattened) < count:
            *before, last = rest
            assert isinstance(last, Loop), "a parallel loop ends its body"
            (between if flattened else []).extend(s for s in before if not isinstance(s, Loop))
            if not flattened:
                self._body(tuple(before))
            flattened.append(last)
            rest = last.body
        if not flattened:
            self.put("if (thread == 0) {")
            self._inside(rest)
            return
        self._work_items(flattened)
        self._inside((*between, *rest))

    def _work_items(self, flattened: list[Loop]) -> None:
        for loop in flattened:
            extent = self.x.size(self.kernel.extents[loop.axis])
            self.put(f"const int64_t {loop.axis}_t = c_ceil_div({extent}, {loop.block});")
        total = " * ".join(f"{loop.axis}_t" for loop in flattened)
        if self.kernel.partition == "cyclic":
            self.put(f"for (int64_t w = thread, w_end = {total}; w < w_end; w += threads) {{")
        else:
            self.put(f"const int64_t w_all = {total}, w_end = c_share(w_all, thread + 1, threads);")
            self.put("for (int64_t w = c_share(w_all, thread, threads); w < w_end; w++) {")
        self.depth += 1
        self.put("int64_t w_rest = w;")
        for loop in reversed(flattened):
            a = loop.axis
            self.put(f"const int64_t {a}_b = w_rest % {a}_t * {loop.block}; w_rest /= {a}_t;")
            self._count(a, loop.block, self.x.size(self.kernel.extents[a]))
        self.depth -= 1

    def _count(self, axis: str, block: int, end: str) -> None:
        extent = self.kernel.extents[axis]
        if isinstance(extent, int) and extent % block == 0 and end == str(extent):
            self.put(f"const int64_t {axis}_n = {block};")
        else:
            self.put(f"const int64_t {axis}_n = c_min({block}, {end} - {axis}_b);")
        self.put(f"(void){axis}_n;")

    def _inside(self, body: tuple[Statement | Loop, ...]) -> None:
        self.depth += 1
        self._body(body)
        self.depth -= 1
        self.put("}")

    def _body(self, body: tuple[Statement | Loop, ...]) -> None:
        for item in body:
            if isinstance(item, Loop):
                self._loop(item)
            else:
                self._statement(item)

    def _loop(self, loop: Loop) -> None:
        a, b = loop.axis, loop.block
        end = extent = self.x.size(self.kernel.extents[a])
        self.put("{")
        self.depth += 1
        if loop.upper is not None:
            self.put(f"const int64_t {a}_end = c_min({extent}, {self.x.index(loop.upper)});")
            end = f"{a}_end"
        start = "0"
        if loop.lower is not None:
            start = f"c_max(0, {self.x.index(loop.lower)}) / {b} * {b}"
        self.put(f"for (int64_t {a}_b = {start}; {a}_b < {end}; {a}_b += {b}) {{")
        self.depth += 1
        self._count(a, b, end)
        self.depth -= 1
        self._inside(loop.body)
        self.depth -= 1
        self.put("}")

    # Statements

    def _statement(self, s: Statement) -> None:
        match s:
            case Fill():
                self._over(s.tile.axes, f"{self.x.tile(s.tile)} = {self.x.number(s.value)};", whole=True)
            case Copy():
                self._over(s.tile.axes, f"{self.x.tile(s.tile)} = {self.x.tile(s.source)};")
            case Compute():
                self._over(s.tile.axes, f"{self.x.tile(s.tile)} = {self.x.value(s.expr)};")
            case Scale():
                self._scale(s)
            case Dot():
                self._dot(s)
            case Reduce():
                self._reduce(s)
            case Store():
                self._store(s)

    def _over(self, axes: Sequence[str], inner: str, *, whole: bool = False) -> None:
        """`inner` at every point of `axes`; `whole` visits full blocks, so that a fill leaves no hole."""
        opened = self._open(axes, whole=whole)
        self.put(inner)
        self._close(opened)

    def _open(self, axes: Sequence[str], *, whole: bool = False) -> int:
        for i, a in enumerate(axes):
            end = str(self.kernel.blocks[a]) if whole else f"{a}_n"
            if i == len(axes) - 1:
                self.put("#pragma GCC ivdep")
            self.put(f"for (int64_t {a}_i = 0; {a}_i < {end}; {a}_i++) {{")
            self.depth += 1
        return len(axes)

    def _close(self, opened: int) -> None:
        for _ in range(opened):
            self.depth -= 1
            self.put("}")

    def _scale(self, s: Scale) -> None:
        """The factor is computed once for the axes it has, then applied along the others."""
        own = [a for a in s.tile.axes if a in s.expr.free]
        if list(s.tile.axes[: len(own)]) != own:
            self._over(s.tile.axes, f"{self.x.tile(s.tile)} *= {self.x.value(s.expr)};")
            return
        outer = self._open(own)
        self.put("{")
        self.depth += 1
        self.put(f"const float factor = {self.x.value(s.expr)};")
        self._over(s.tile.axes[len(own) :], f"{self.x.tile(s.tile)} *= factor;")
        self.depth -= 1
        self.put("}")
        self._close(outer)

    def _reduce(self, s: Reduce) -> None:
        a, is_max = s.axis, s.kind is Kind.MAX
        outer = self._open(s.tile.axes)
        self.put("{")
        self.depth += 1
        self.put("alignas(64) float lanes[16];")
        start = "-__builtin_inff()" if is_max else "0.0f"
        self.put(f"for (int l = 0; l < 16; l++) lanes[l] = {start};")
        op = "max" if is_max else "add"
        step = f"lanes[l] = lane_{op}(lanes[l], {self.x.value(s.expr)});"
        self.put(f"int64_t {a}_j = 0;")
        self.put(f"for (; {a}_j + 16 <= {a}_n; {a}_j += 16) {{")
        each = f"{{ const int64_t {a}_i = {a}_j + l; (void){a}_i; {step} }}"
        self.put("#pragma GCC unroll 1")  # unrolled, GCC 12 takes the lanes for scalars
        self.put(f"  for (int l = 0; l < 16; l++) {each}")
        self.put("}")
        self.put(f"for (int l = 0; {a}_j + l < {a}_n; l++) {each}")
        tree = f"lanes_{op}(lanes)"
        ref = self.x.tile(s.tile)
        joined = f"lane_{op}({ref}, {tree})" if s.accumulate else tree
        self.put(f"{ref} = {joined};")
        self.depth -= 1
        self.put("}")
        self._close(outer)

    def _store(self, s: Store) -> None:
        shape = next(p.shape for p in self.kernel.params if p.buffer == s.buffer)
        place = load(s.buffer, s.indices, s.dtype)
        opened = self._open(s.axes)
        guard = " && ".join(f"c_inside({self.x.index(c)}, {self.x.size(n)})" for c, n in s.limits)
        target = f"{s.buffer}[{self.x.flat(place, shape)}]"
        self.put(f"{f'if ({guard}) ' if guard else ''}{target} = {self.x.value(s.expr)};")
        self._close(opened)

    # Contractions

    def _dot(self, s: Dot) -> None:
        rows = "1" if s.m is None else f"{s.m}_n"
        pitch = self.kernel.blocks[s.n]
        a, lda = self._operand(s.a, (s.m, s.k))
        add = "true" if s.accumulate else "false"
        k = f"{s.k}_n"
        if isinstance(s.b, Packed):
            self._packed(s, s.b, rows, a, lda, add)
            return
        if isinstance(s.b, Direct) and s.b.grain_axis is not None:
            self._grained(s, s.b, rows, a, lda, add)
            return
        b, ldb, name = self._right(s, s.b)
        self.put(f"{name}({s.tile.name}, {pitch}, {rows}, {s.n}_n, {a}, {lda}, {b}, {ldb}, {k}, {add});")

    def _grained(self, s: Dot, b: Direct, rows: str, a: str, lda: str, add: str) -> None:
        """Runs of the grained axis, each with an address. Runs of columns are multiplied side by side; runs
        of k add up in ascending order, one call each.
        """
        axis, grain, pitch = b.grain_axis, b.grain, self.kernel.blocks[s.n]
        assert axis is not None
        pointer = self.x.address(b.load, [s.k, s.n], {axis: "p"})
        _, ldb, name = self._right(s, b)
        runs, count = f"for (int64_t p = 0; p < {axis}_n; p += {grain})", f"c_min({grain}, {axis}_n - p)"
        into = f"{s.tile.name}, {pitch}, {rows}"
        self.put("{")
        if axis == s.n and b.col_stride == 1:
            self.put(f"  const {C_TYPES[b.load.dtype]}* runs[{-(-self.kernel.blocks[axis] // grain)}];")
            self.put(f"  {runs} runs[p / {grain}] = {pointer};")
            rest = f"{axis}_n, {a}, {lda}, runs, {ldb}, {s.k}_n, {add}"
            self.put(f"  dot_runs<{grain}>({into}, {rest});")
        elif axis == s.n:
            into = f"{s.tile.name} + p, {pitch}, {rows}"
            rest = f"{count}, {a}, {lda}, {pointer}, {ldb}, {s.k}_n, {add}"
            self.put(f"  {runs} {name}({into}, {rest});")
        else:
            more = "true" if s.accumulate else "p > 0"
            rest = f"{s.n}_n, {a} + p, {lda}, {pointer}, {ldb}, {count}, {more}"
            self.put(f"  {runs} {name}({into}, {rest});")
        self.put("}")

    def _packed(self, s: Dot, b: Packed, rows: str, a: str, lda: str, add: str) -> None:
        """One call for each panel of the tile; each is told where the next one lies, to ask for it ahead."""
        param = next(p for p in self.kernel.params if p.buffer == str(b.load.attr))
        k_size = param.shape[1]
        assert isinstance(k_size, int), "a packed weight has a static shape"
        stride = panel_stride_bytes(b.layout, k_size) // itemsize(param.dtype)
        n, pitch, extent = s.n, self.kernel.blocks[s.n], self.kernel.extents[s.n]
        assert isinstance(extent, int), "a packed weight has a static shape"
        self.put(f"for (int64_t p = 0; p * {PANEL} < {n}_n; p++) {{")
        self.put(
            f"  const {C_TYPES[param.dtype]}* panel = {param.buffer} + ({n}_b / {PANEL} + p) * {stride};"
        )
        last = -(-extent // PANEL) - 1
        ahead = f"{n}_b / {PANEL} + p < {last} ? panel + {stride} : nullptr"
        into = f"{s.tile.name} + p * {PANEL}, {pitch}, {rows}"
        self.put(f"  {_PACKED_DOT[b.layout]}({into}, {a}, {lda}, panel, {s.k}_n, {add}, {ahead});")
        self.put("}")

    def _operand(self, operand: Operand, axes: tuple[str | None, ...]) -> tuple[str, str]:
        if isinstance(operand, Tile):
            return operand.name, str(self.kernel.blocks[operand.axes[-1]])
        assert isinstance(operand, Direct)
        return self.x.address(operand.load, [a for a in axes if a]), str(operand.row_stride)

    def _right(self, s: Dot, operand: Tile | Direct) -> tuple[str, str, str]:
        pointer, row = self._operand(operand, (s.k, s.n))
        if isinstance(operand, Tile):
            return pointer, row, "dot_f32"
        suffix = "bf16" if operand.load.dtype is DType.BF16 else "f32"
        if operand.col_stride == 1:
            return pointer, row, f"dot_{suffix}"
        return pointer, str(operand.col_stride), f"dot_{suffix}_nt"
