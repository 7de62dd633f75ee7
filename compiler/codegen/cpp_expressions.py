"""Scalar expressions of a tile program as C++ text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from compiler.codegen.indices import IndexPrinter
from compiler.ir.dim import Size
from compiler.ir.dtype import DType
from compiler.lower.indexing import linear
from compiler.lower.terms import Kind, Term, buffer_of, tile_of
from compiler.lower.tiles import Kernel, Tile

C_TYPES: Mapping[DType, str] = {
    DType.F32: "float",
    DType.BF16: "uint16_t",
    DType.F16: "uint16_t",
    DType.I32: "int32_t",
    DType.BOOL: "uint8_t",
}
_CALLS: Mapping[Kind, str] = {
    Kind.EXP2: "c_exp2f({0})",
    Kind.LOG2: "c_log2f({0})",
    Kind.SIN: "c_sinf({0})",
    Kind.SQRT: "__builtin_sqrtf({0})",
    Kind.RECIP: "(1.0f / {0})",
    Kind.ADD: "({0} + {1})",
    Kind.MUL: "({0} * {1})",
    Kind.DIV: "({0} / {1})",
    Kind.MOD: "__builtin_fmodf({0}, {1})",
    Kind.LT: "({0} < {1})",
    Kind.SELECT: "({0} ? {1} : {2})",
}
_WIDEN: Mapping[DType, str] = {
    DType.BF16: "c_bf16_to_f32({0})",
    DType.F16: "c_f16_to_f32({0})",
    DType.I32: "(float)({0})",
    DType.BOOL: "({0} ? 1.0f : 0.0f)",
    DType.F32: "{0}",
}
_NARROW: Mapping[DType, str] = {DType.BF16: "c_f32_to_bf16({0})", DType.F16: "c_f32_to_f16({0})"}


@dataclass(slots=True)
class CExpressions:
    """Prints values and addresses at the current point of the kernel's axes."""

    kernel: Kernel
    indices: IndexPrinter = field(init=False)

    def __post_init__(self) -> None:
        self.indices = IndexPrinter(self._axis, self._index_load, lambda name: f"D_{name}")

    def _axis(self, axis: str) -> str:
        return f"({axis}_b + {axis}_i)" if self.kernel.blocks[axis] > 1 else f"{axis}_b"

    def _index_load(self, load: Term) -> str:
        return f"(int64_t){self.memory(load)}"

    def shape(self, buffer: str) -> tuple[Size, ...]:
        return next(p.shape for p in self.kernel.params if p.buffer == buffer)

    def size(self, size: Size) -> str:
        return self.indices.size(size)

    def index(self, term: Term) -> str:
        return f"(int64_t){self.indices.term(term)}"

    def flat(self, load: Term, shape: tuple[Size, ...]) -> str:
        return self.indices.flat(load, shape)

    def memory(self, load: Term) -> str:
        buffer = buffer_of(load)
        return f"{buffer}[{self.flat(load, self.shape(buffer))}]"

    def address(self, load: Term, tile_axes: Sequence[str], moved: Mapping[str, str] | None = None) -> str:
        """Where element (0, 0) of a direct operand lies: the tile axes stand at their first point.

        `moved` adds a variable to the index of an axis.
        """
        still = set(tile_axes)
        offsets = moved or {}

        def axis(name: str) -> str:
            if name in offsets:
                return f"({name}_b + {offsets[name]})"
            return f"{name}_b" if name in still else self._axis(name)

        printer = replace(self.indices, axis=axis, load=lambda inner: f"(int64_t){deref(inner)}")

        def deref(inner: Term) -> str:
            buffer = buffer_of(inner)
            return f"{buffer}[{printer.flat(inner, self.shape(buffer))}]"

        buffer = buffer_of(load)
        return f"&{buffer}[{printer.flat(load, self.shape(buffer))}]"

    def tile(self, tile: Tile) -> str:
        return self._tile(tile.name, tile.axes)

    def _tile(self, name: str, axes: tuple[str, ...]) -> str:
        position = ""
        for a in axes:
            position = f"({position}) * {self.kernel.blocks[a]} + {a}_i" if position else f"{a}_i"
        return f"{name}[{position or '0'}]"

    def number(self, value: float) -> str:
        if math.isnan(value):
            return '__builtin_nanf("")'
        if math.isinf(value):
            return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
        return f"{float(value).hex()}f"

    def value(self, term: Term) -> str:
        """A float, bool, or half-float value; an i32 term is an index."""
        match term.kind:
            case Kind.TILE:
                return self._tile(*tile_of(term))
            case Kind.LOAD if term.dtype is not DType.I32:
                return self.memory(term)
            case Kind.NUM if isinstance(term.attr, bool):
                return "true" if term.attr else "false"
            case Kind.NUM if isinstance(term.attr, float):
                return self.number(term.attr)
            case Kind.CAST:
                return self._cast(term)
        if term.dtype is DType.I32:
            return f"({self.indices.linear(linear(term))})"
        return _CALLS[term.kind].format(*(self.value(a) for a in term.args))

    def _cast(self, term: Term) -> str:
        source, inner = term.args[0].dtype, self.value(term.args[0])
        if term.dtype is DType.BOOL:
            return f"({_WIDEN[source].format(inner)} != 0.0f)"
        if term.dtype is DType.I32:
            return f"(int32_t)({_WIDEN[source].format(inner)})"
        wide = _WIDEN[source].format(inner)
        return _NARROW[term.dtype].format(wide) if term.dtype in _NARROW else wide
