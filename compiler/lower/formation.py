"""Kernel formation: one definition and one schedule become a tile program.

Each value is placed in the outermost loop that knows all it depends on. A value becomes a tile buffer if it
is a
reduction, a contraction operand that cannot be read where it lies, or an exponential used twice; else it is
inlined.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from compiler.artifact.layouts import WeightLayout
from compiler.ir.dim import Size
from compiler.ir.dtype import DType
from compiler.lower import terms as t
from compiler.lower.bounds import assume, derive
from compiler.lower.canonical import Canonical
from compiler.lower.contraction import Contraction, contraction
from compiler.lower.errors import FormationError
from compiler.lower.online import correction, pass_levels, reductions_over
from compiler.lower.operands import OperandReader, is_narrow
from compiler.lower.schedule import Schedule
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of
from compiler.lower.tiles import (
    Compute,
    Copy,
    Dot,
    Fill,
    Kernel,
    Loop,
    Operand,
    Packed,
    Param,
    Reduce,
    Scale,
    Statement,
    Store,
    Tile,
)

Body: TypeAlias = list[Statement | Loop]
MAX_START = -3.4e38
"""Where a running maximum starts: finite, so that `exp2(-inf - m)` is 0 on rows that are fully masked so
far.
"""


def form(definition: Canonical, schedule: Schedule) -> Kernel:
    """The tile program of a definition.

    Raises:
        FormationError: the schedule does not fit (an axis too long for a tile, two symbolic reductions, ...).
    """
    return _Former(definition, schedule).kernel()


@dataclass(slots=True)
class _Former:
    definition: Canonical
    schedule: Schedule
    blocks: dict[str, int] = field(init=False)
    order: list[str] = field(init=False)
    levels: list[Body] = field(init=False)
    running: list[Term] = field(init=False)
    _made: dict[tuple[Term, tuple[str, ...], int], Tile] = field(init=False, default_factory=dict)
    _accumulators: dict[Term, Tile] = field(init=False, default_factory=dict)
    _before: dict[Term, Tile] = field(init=False, default_factory=dict)
    _uses: dict[Term, int] = field(init=False, default_factory=dict)
    _count: int = field(init=False, default=0)
    _stream_body: Body | None = field(init=False, default=None)
    _assumed: tuple[Term, ...] = field(init=False, default=())
    _reader: OperandReader = field(init=False)

    def __post_init__(self) -> None:
        d, s = self.definition, self.schedule
        reached = t.topological([d.term])
        self._uses = _count_uses([d.term])
        bound = list(dict.fromkeys(axis_of(x) for x in reached if x.kind in REDUCTIONS))
        looped = {c.axis: c.block for c in s.loops}
        self.blocks = {a: looped.get(a) or self._whole(a) for a in d.axes}
        for a in bound:
            self.blocks[a] = s.stream_block if a == s.stream else self._whole(a)
        middle = [s.stream] if s.stream and s.stream not in d.axes else []
        self.order = [*d.axes, *middle, *(a for a in bound if a not in d.axes and a != s.stream)]
        self.levels = [[] for _ in range(len(s.loops) + 1)]
        self.running = reductions_over(d.term, s.stream) if s.stream else []
        self._reader = OperandReader(d.buffers, self.blocks, s.is_packed, s.uses_tiles)

    def _whole(self, axis: str) -> int:
        extent: Size = self.definition.extents[axis]
        if not isinstance(extent, int):
            raise FormationError(
                f"axis {axis} has symbolic extent {extent}: it needs a loop or to be the stream"
            )
        return max(extent, 1)

    # The nest

    def kernel(self) -> Kernel:
        d, s = self.definition, self.schedule
        inner = self.levels[-1]
        self._form_passes(inner)
        body: tuple[Statement | Loop, ...] = tuple(inner)
        for choice, outer in zip(reversed(s.loops), reversed(self.levels[:-1]), strict=True):
            body = (*outer, Loop(choice.axis, choice.block, body))
        params = tuple(self._param(name, body) for name in d.buffers)
        return Kernel(params, dict(self.blocks), d.extents, body, s.parallel, s.partition)

    def _param(self, name: str, body: tuple[Statement | Loop, ...]) -> Param:
        buffer = self.definition.buffers[name]
        is_written = name == self.definition.place.buffer
        layout = self._reader.packed.get(name, WeightLayout.ROW_MAJOR)
        return Param(name, buffer.shape, buffer.dtype, layout, is_written)

    def _form_passes(self, inner: Body) -> None:
        s, root = self.schedule, self.definition.term
        passes = pass_levels(self.running)
        around = self.levels[self._pass_depth()]
        for number in range(max(passes.values(), default=-1) + 1):
            self._form_pass(around, [r for r in self.running if passes[r] == number])
        if s.stream is not None and s.stream in self.definition.axes:
            body: Body = []
            self._stream_body = body
            self._store(root, body)
            inner.append(Loop(s.stream, s.stream_block, tuple(body)))
        else:
            self._stream_body = None
            self._store(root, inner)

    def _pass_depth(self) -> int:
        """Loops around the passes: those whose axes the running reductions vary along, and all that threads
        share. What is inside others reads finished values.
        """
        s = self.schedule
        read = frozenset().union(*(r.free for r in self.running))
        return max([s.parallel, *(i + 1 for i, c in enumerate(s.loops) if c.axis in read)])

    def _form_pass(self, inner: Body, reductions: list[Term]) -> None:
        """One loop over the stream axis that advances `reductions`, arguments before users."""
        s = self.schedule
        assert s.stream is not None
        tiled = frozenset(a for a, b in self.blocks.items() if b > 1)
        kinds = [(r.args[0], Kind.MAX if r.kind is Kind.MAX else Kind.SUM) for r in reductions]
        bounds = derive(s.stream, kinds, tiled - {s.stream})
        self._assumed = bounds.proven
        self._uses = _count_uses([assume(r.args[0], bounds.proven, self.running) for r in reductions])
        for r in reductions:
            acc = Tile(f"acc{len(self._accumulators)}", self._tile_axes(r), DType.F32)
            self._accumulators[r] = acc
            inner.append(Fill(acc, _start(r, reductions)))
        body: Body = []
        self._stream_body = body
        for r in reductions:
            self._advance(r, reductions, body)
        self._stream_body, self._assumed = None, ()
        self._uses = _count_uses([self.definition.term])
        for key in [k for k in self._made if k[2] == id(body)]:
            del self._made[key]
        lower, upper = bounds.lower, bounds.upper
        inner.append(Loop(s.stream, s.stream_block, tuple(body), lower, upper, is_exact=True))

    def _advance(self, r: Term, together: list[Term], body: Body) -> None:
        """Keep the old value where a correction needs it, rescale, and add this tile."""
        acc = self._accumulators[r]
        others = [x for x in together if x is not r]
        if any(t.contains(x.args[0], r) for x in others):
            before = Tile(f"old{len(self._before)}", acc.axes, DType.F32)
            self._before[r] = before
            body.append(Copy(before, acc))
        read = [x for x in others if t.contains(r.args[0], x)]
        if read:
            assert r.kind is Kind.ONLINE, "only an online reduction shares a pass with what it reads"
            factor = correction(r.args[1], read)
            body.append(Scale(acc, self._factor(factor)))
        self._accumulate(r, body, acc, accumulate=True)

    def _factor(self, term: Term) -> Term:
        """A correction factor as an expression: `OLD(r)` reads the copy of the running reduction."""
        if term.kind is Kind.OLD:
            return _read(self._before[term.args[0]])
        if term in self._accumulators or term.kind in REDUCTIONS or term.kind is Kind.LOAD or not term.args:
            return self._expr(term)
        return t.rebuild(term, tuple(self._factor(a) for a in term.args))

    # Values

    def _tile_axes(self, term: Term) -> tuple[str, ...]:
        return tuple(a for a in self.order if a in term.free and self.blocks[a] > 1)

    def _is_streamed(self, term: Term) -> bool:
        """Whether a value changes inside the stream loop that is being formed."""
        if self._stream_body is None:
            return False
        return self.schedule.stream in term.free or any(r in self.running for r in t.topological([term]))

    def _home(self, term: Term) -> Body:
        """The body of the outermost loop in which everything `term` depends on is known."""
        if self._is_streamed(term):
            assert self._stream_body is not None
            return self._stream_body
        if any(r in self._accumulators for r in t.topological([term])):
            return self.levels[-1]
        depth = 0
        for i, choice in enumerate(self.schedule.loops):
            if choice.axis in term.free:
                depth = i + 1
        return self.levels[depth]

    def _tile(self, term: Term, axes: tuple[str, ...] | None = None) -> Tile:
        """A tile buffer that holds `term`, made once for each home and axis order."""
        axes = self._tile_axes(term) if axes is None else axes
        home = self._home(term)
        key = (term, axes, id(home))
        if key in self._made:
            return self._made[key]
        if term.dtype is not DType.F32:
            raise FormationError(f"a tile of {term.dtype} is not supported: {term!r:.80}")
        self._count += 1
        made = Tile(f"t{self._count}", axes, DType.F32)
        if term.kind in REDUCTIONS:
            self._accumulate(term, home, made, accumulate=False)
        else:
            expr = self._expr(term, top=True)
            home.append(Compute(made, expr))
        self._made[key] = made
        return made

    def _expr(self, term: Term, *, top: bool = False) -> Term:
        """`term` as an expression over tiles, loads and indices at the current point."""
        if term in self._accumulators:
            return _read(self._accumulators[term])
        if term.kind in REDUCTIONS or (not top and self._deserves_tile(term)):
            return _read(self._tile(term))
        if term.kind is Kind.LOAD or not term.args:
            return term
        return t.rebuild(term, tuple(self._expr(a) for a in term.args))

    def _deserves_tile(self, term: Term) -> bool:
        is_costly = term.kind in (Kind.EXP2, Kind.SIN, Kind.LOG2, Kind.RECIP, Kind.SQRT, Kind.DIV)
        if not is_costly or term.dtype is not DType.F32:
            return False
        axes = self._tile_axes(term)
        is_shared = self._uses.get(term, 0) > 1 and bool(axes)
        is_smaller = len(axes) < sum(self.blocks[a] > 1 for a in self.definition.axes)
        return is_shared or is_smaller or self._home(term) is not self._innermost()

    def _innermost(self) -> Body:
        return self._stream_body if self._stream_body is not None else self.levels[-1]

    def _accumulate(self, r: Term, body: Body, into: Tile, *, accumulate: bool) -> None:
        r = _with_body(r, assume(r.args[0], self._assumed, self.running))
        found = contraction(r, into.axes)
        if found is not None:
            self._dot(found, body, into, accumulate=accumulate)
            return
        kind = Kind.MAX if r.kind is Kind.MAX else Kind.SUM
        body.append(Reduce(into, kind, axis_of(r), self._expr(r.args[0]), accumulate))

    def _dot(self, c: Contraction, body: Body, into: Tile, *, accumulate: bool) -> None:
        rows = (c.k,) if c.m is None else (c.m, c.k)
        a: Operand = self._reader.rows(c.a, c.m, c.k) or self._tile(c.a, rows)
        b: Operand = self._reader.columns(c.b, c.k, c.n, a) or self._tile(c.b, (c.k, c.n))
        if is_narrow(a) and not isinstance(b, Packed):
            a = self._tile(c.a, rows)
        body.append(Dot(into, c.m, c.n, c.k, a, b, accumulate))

    def _store(self, root: Term, body: Body) -> None:
        d = self.definition
        axes = tuple(a for a in d.axes if self.blocks[a] > 1)
        expr = self._expr(root, top=True)
        body.append(Store(d.place.buffer, d.place.indices, d.place.limits, axes, expr, d.dtype))


def _count_uses(roots: list[Term]) -> dict[Term, int]:
    """How often each term is read; a root is read once by whoever asked for it."""
    uses: dict[Term, int] = {}
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
    for term in t.topological(roots):
        for a in term.args:
            uses[a] = uses.get(a, 0) + 1
    return uses


def _start(r: Term, together: list[Term]) -> float:
    """Where a running reduction starts; a maximum that others are rescaled by starts finite."""
    if r.kind is not Kind.MAX:
        return 0.0
    is_read = any(x is not r and t.contains(x.args[0], r) for x in together)
    return MAX_START if is_read else float("-inf")


def _read(tile: Tile) -> Term:
    return t.tile(tile.name, tile.axes, tile.dtype)


def _with_body(r: Term, body: Term) -> Term:
    """The same reduction over another body."""
    return r if body is r.args[0] else t.make(r.kind, (body, *r.args[1:]), r.dtype, r.attr)
