"""Values of a tile program as Triton text, at the point where a statement stands.

A value is a tensor with one dimension for each of the statement's axes, of size 1 where it does not vary;
without axes it is a scalar. Loads are named and masked: lanes outside an axis read 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from compiler.codegen.triton.indices import TritonIndices, is_wide
from compiler.ir.dim import Size
from compiler.ir.dtype import DType
from compiler.lower.indexing import flatten, linear
from compiler.lower.recombine import recombined
from compiler.lower.terms import UNARY, Kind, Term, buffer_of, topological
from compiler.lower.tiles import Kernel

POINTER_TYPES: Mapping[DType, str] = {
    DType.F32: "*fp32",
    DType.BF16: "*bf16",
    DType.F16: "*fp16",
    DType.I32: "*i32",
    DType.BOOL: "*i8",
}
_VALUE_TYPES: Mapping[DType, str] = {
    DType.F32: "tl.float32",
    DType.BF16: "tl.bfloat16",
    DType.F16: "tl.float16",
    DType.I32: "tl.int32",
    DType.BOOL: "tl.int8",
}
_CALLS: Mapping[Kind, str] = {
    Kind.EXP2: "tl.exp2({0})",
    Kind.LOG2: "tl.log2({0})",
    Kind.SIN: "tl.sin({0})",
    Kind.SQRT: "tl.sqrt_rn({0})",
    Kind.RECIP: "tl.div_rn(1.0, {0})",
    Kind.ADD: "({0} + {1})",
    Kind.MUL: "({0} * {1})",
    Kind.DIV: "tl.div_rn({0}, {1})",
    Kind.MOD: "({0} % {1})",
    Kind.LT: "({0} < {1})",
    Kind.SELECT: "tl.where({0}, {1}, {2})",
}
_LEAVES = (Kind.NUM, Kind.IDX, Kind.TILE)
_F32_MOST, _F32_LEAST = 3.4028234663852886e38, 2.0**-126


@dataclass(slots=True)
class Frame:
    """What every statement of a kernel shares.

    `masked` axes have lanes outside them; `loaded` names what was read so far, one table for each open loop;
    `emit` takes a line.
    """

    kernel: Kernel
    lanes: Mapping[str, int]
    emit: Callable[[str], None]
    looped: frozenset[str]
    masked: set[str] = field(default_factory=set)
    loaded: list[dict[tuple[Term, tuple[str, ...]], str]] = field(default_factory=lambda: [{}])
    _names: int = 0

    def bind(self, text: str) -> str:
        """A name for the value of `text`."""
        if text.isidentifier():
            return text
        self._names += 1
        name = f"v{self._names}"
        self.emit(f"{name} = {text}")
        return name

    def shape_of(self, buffer: str) -> tuple[Size, ...]:
        return next(p.shape for p in self.kernel.params if p.buffer == buffer)


@dataclass(slots=True)
class Point:
    """Prints values over `axes`. What is used twice is computed once, under a name."""

    frame: Frame
    axes: tuple[str, ...]
    _names: dict[Term, str] = field(default_factory=dict)
    _uses: dict[Term, int] = field(default_factory=dict)

    # Values

    def value(self, root: Term) -> str:
        """A value that broadcasts to the shape of `axes`."""
        for term in topological([root]):
            for a in term.args:
                self._uses[a] = self._uses.get(a, 0) + 1
        return self._text(root)

    def full(self, root: Term) -> str:
        """A value that has the whole shape of `axes`."""
        if root.kind is Kind.NUM:
            return f"tl.full({self.shape()}, {number(cast(float, root.attr))}, {_VALUE_TYPES[root.dtype]})"
        return self.spread(self.value(root), root.free)

    def spread(self, text: str, varies: Iterable[str]) -> str:
        """`text`, which varies along `varies`, broadcast to every axis."""
        is_whole = set(self.axes) <= set(varies)
        return text if is_whole else f"tl.broadcast_to({text}, {self.shape()})"

    def shape(self) -> str:
        return _tuple([str(self.frame.lanes[a]) for a in self.axes])

    def _text(self, term: Term) -> str:
        if term in self._names:
            return self._names[term]
        text = self._print(term)
        is_shared = self._uses.get(term, 0) > 1 and term.kind not in _LEAVES and term.dtype is not DType.I32
        if is_shared:
            text = self._names[term] = self.frame.bind(text)
        return text

    def _print(self, term: Term) -> str:
        if term.kind is Kind.TILE:
            name, axes = cast(tuple[str, tuple[str, ...]], term.attr)
            return self.placed(name, axes)
        if term.dtype is DType.I32 and term.kind is not Kind.CAST:
            return self.index(term)
        if term.kind is Kind.LOAD:
            return self.load(term)
        if term.kind is Kind.NUM:
            return str(term.attr) if isinstance(term.attr, bool) else number(cast(float, term.attr))
        if term.kind is Kind.CAST:
            return self._cast(term)
        args = [self._text(a) for a in term.args]
        if term.kind in UNARY and term.args[0].kind is Kind.NUM:
            args = [f"tl.full((), {args[0]}, tl.float32)"]
        return _CALLS[term.kind].format(*args)

    def _cast(self, term: Term) -> str:
        inner = self._text(term.args[0])
        if term.dtype is DType.BOOL:
            return f"({inner} != 0)"
        return f"tl.cast({inner}, {_VALUE_TYPES[term.dtype]})"

    def placed(self, name: str, have: tuple[str, ...]) -> str:
        """A tensor with the dimensions `have`, arranged along `axes`."""
        wanted = tuple(a for a in self.axes if a in have)
        assert len(wanted) == len(have), f"{name}{have} is read over {self.axes}"
        if wanted != have:
            name = f"tl.permute({name}, {_tuple([str(have.index(a)) for a in wanted])})"
        if not have or wanted == self.axes:
            return name
        return f"{name}[{', '.join(':' if a in have else 'None' for a in self.axes)}]"

    # Indices and memory

    def index(self, term: Term) -> str:
        if term.kind is Kind.SELECT:
            return self._select(term)
        return self._indices().term(term)

    def _select(self, term: Term) -> str:
        condition, a, b = (self._text(x) for x in term.args)
        return f"tl.where({condition}, {a}, {b})"

    def size(self, size: Size) -> str:
        return self._indices().size(size)

    def offset(self, load: Term) -> str:
        """Row-major position of a load in its buffer, in elements."""
        shape = self.frame.shape_of(buffer_of(load))
        form = recombined(linear(flatten(load.args, shape)))
        return self._indices().wide(form) if is_wide(shape) else self._indices().linear(form)

    def load(self, load: Term) -> str:
        """The name of what a load reads; a kernel reads nothing that it writes, so once is enough."""
        varies = any(self.frame.lanes[a] > 1 for a in self.axes if a in load.free)
        key = (load, self.axes if varies else ())
        found = next((known[key] for known in self.frame.loaded if key in known), None)
        if found is None:
            mask = self.mask(load.free)
            guard = f", mask={mask}, other={'0.0' if _is_float(load.dtype) else '0'}" if mask else ""
            text = f"tl.load({buffer_of(load)} + {self.offset(load)}{guard})"
            found = self.frame.bind(f"({text} != 0)" if load.dtype is DType.BOOL else text)
            self.frame.loaded[-1][key] = found
        return found

    def mask(self, axes: Iterable[str]) -> str:
        """Where the lanes of `axes` are inside; empty when they all are."""
        wanted = set(axes) & self.frame.masked
        return " & ".join(self.placed(f"{a}_m", (a,)) for a in self.axes if a in wanted)

    def axis(self, axis: str) -> str:
        """The index along `axis`: a vector, or one number if it has one lane or is not among `axes`."""
        if axis in self.axes and self.frame.lanes[axis] > 1:
            return self.placed(f"{axis}_i", (axis,))
        return f"{axis}_b" if axis in self.frame.looped else "0"

    def _indices(self) -> TritonIndices:
        return TritonIndices(
            self.axis,
            self.load,
            lambda name: f"D_{name}",
            extents=self.frame.kernel.extents,
            bind=self.frame.bind,
            other=self._text,
        )


def number(value: float) -> str:
    """A literal that Triton takes for an f32 constant."""
    if math.isnan(value) or math.isinf(value):
        return f'float("{value}")'
    if value != 0.0 and not _F32_LEAST <= abs(value) <= _F32_MOST:
        return f"tl.full((), {value!r}, tl.float32)"
    return repr(float(value))


def _is_float(dtype: DType) -> bool:
    return dtype in (DType.F32, DType.BF16, DType.F16)


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
