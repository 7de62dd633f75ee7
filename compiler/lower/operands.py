"""Which contraction operands are read where they lie, and which need a tile of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd

from compiler.artifact.layouts import PANEL, WeightLayout
from compiler.ir.dtype import DType
from compiler.lower.canonical import Buffer, Role
from compiler.lower.contraction import strides_in_tile
from compiler.lower.errors import FormationError
from compiler.lower.terms import Kind, Term, axis_of, buffer_of, topological
from compiler.lower.tiles import Direct, Operand, Packed


@dataclass(slots=True)
class OperandReader:
    """Finds direct and packed reads; `packed` collects the layout of each buffer that is read packed."""

    buffers: Mapping[str, Buffer]
    blocks: Mapping[str, int]
    may_pack: bool
    uses_tiles: bool = False
    packed: dict[str, WeightLayout] = field(default_factory=dict)

    def rows(self, term: Term, m: str | None, k: str) -> Direct | None:
        """Operand A [m, k] in memory, k contiguous: f32, or bf16 for products on tiles."""
        load = term.args[0] if term.kind is Kind.CAST and self.uses_tiles else term
        wanted = DType.F32 if load is term else DType.BF16
        if load.kind is not Kind.LOAD or load.dtype is not wanted or term.dtype is not DType.F32:
            return None
        found = self._direct(load, m, k)
        return found if found is not None and found.col_stride == 1 and not found.grain else None

    def columns(self, term: Term, k: str, n: str, a: Operand) -> Direct | Packed | None:
        """Operand B [k, n]: f32 or bf16 in memory, with n or k contiguous; a weight may be packed.

        `a` is the operand it meets: a bf16 one needs a weight in tiles.
        """
        load = term.args[0] if term.kind is Kind.CAST else term
        if (
            load.kind is not Kind.LOAD
            or load.dtype not in (DType.F32, DType.BF16)
            or term.dtype is not DType.F32
        ):
            return None
        if self._is_packable(load, k, n):
            layout = _layout(load.dtype, a)
            if self.packed.setdefault(buffer_of(load), layout) is not layout:
                raise FormationError(f"{buffer_of(load)} would be needed in two layouts")
            return Packed(load, n, k, layout)
        found = self._direct(load, k, n)
        return found if found is not None and 1 in (found.row_stride, found.col_stride) else None

    def _is_packable(self, load: Term, k: str, n: str) -> bool:
        buffer = self.buffers[buffer_of(load)]
        if not self.may_pack or buffer.role is not Role.WEIGHT or len(load.args) != 2:
            return False
        is_plain = all(a.kind is Kind.IDX for a in load.args) and [axis_of(a) for a in load.args] == [n, k]
        return is_plain and self.blocks[n] % PANEL == 0 and self.blocks[k] >= int_size(buffer.shape[1])

    def _direct(self, load: Term, row: str | None, col: str) -> Direct | None:
        shape = self.buffers[buffer_of(load)].shape
        axes = [a for a in (row, col) if a is not None]
        for axis, grain in ((None, 0), *_grains(load, axes, self.blocks)):
            aligned = self.blocks if axis is None else {**self.blocks, axis: grain}
            strides = strides_in_tile(load, shape, axes, aligned)
            if strides is not None:
                first = strides[row] if row is not None else 0
                return Direct(load, row, col, first, strides[col], axis, grain)
        return None


def is_narrow(operand: Operand) -> bool:
    """Whether an operand is bf16 in memory and read as such."""
    return isinstance(operand, Direct) and operand.load.dtype is DType.BF16


def _layout(weight: DType, a: Operand) -> WeightLayout:
    if weight is DType.F32:
        return WeightLayout.PACKED_F32_64
    return WeightLayout.PACKED_AMX_64 if is_narrow(a) else WeightLayout.PACKED_BF16_64


def _grains(load: Term, axes: Sequence[str], blocks: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Shorter runs along one axis in which a quotient such as `k // 16` stays constant."""
    for term in topological(load.args):
        if term.kind is not Kind.FLOOR_DIV or term.args[0].kind is not Kind.IDX:
            continue
        axis, divisor = axis_of(term.args[0]), term.args[1].attr
        if axis in axes and isinstance(divisor, int) and 1 < gcd(blocks[axis], divisor) < blocks[axis]:
            yield axis, gcd(blocks[axis], divisor)


def int_size(size: object) -> int:
    """A static size, or one that no block reaches."""
    return size if isinstance(size, int) else 1 << 62
