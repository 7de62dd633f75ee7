"""Tensors over a graph being built: operators, broadcasting, views and reductions, as in NumPy and PyTorch.

Every method only makes nodes. What is not one op is composed in `functional.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType
from typing import TypeAlias

from compiler.errors import DTypeError, GraphError, ShapeError
from compiler.frontend.origin import calling_line
from compiler.frontend.promotion import DEFAULT_FLOAT, Rank, result_dtype, scalar_dtype
from compiler.frontend.shapes import (
    SliceSpec,
    broadcast_shapes,
    normal_axis,
    resolve_reshape,
    resolve_slice,
)
from compiler.ir import DType, GraphBuilder, Node, Op, Shape, Size, is_float
from compiler.ir.dtype import HALVES

Scalar: TypeAlias = float | int | bool


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """A node with the builder that made it. Tensors of different builders do not mix."""

    builder: GraphBuilder
    node: Node

    @property
    def shape(self) -> Shape:
        return self.node.shape

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def rank(self) -> int:
        return len(self.node.shape)

    def cast(self, dtype: DType) -> Tensor:
        """The values as `dtype`; itself where that is its dtype already."""
        if dtype is self.dtype:
            return self
        return self._make(Op.CAST, self, dtype=dtype)

    # Arithmetic. Mixed dtypes promote; i32 wraps; bool + and * are or and and.

    def __add__(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        return x | y if x.dtype is DType.BOOL else self._make(Op.ADD, x, y)

    def __mul__(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        return x & y if x.dtype is DType.BOOL else self._make(Op.MUL, x, y)

    def __neg__(self) -> Tensor:
        self._refuse_bool("-")
        return self * -1

    def __sub__(self, other: Operand) -> Tensor:
        if not isinstance(other, Tensor | bool):
            return self + -other
        x, y = promoted(self, other)
        return x + -y

    def __truediv__(self, other: Operand) -> Tensor:
        """IEEE division; integers divide as floats."""
        x, y = promoted(self, other)
        if not is_float(x.dtype):
            x, y = x.cast(DEFAULT_FLOAT), y.cast(DEFAULT_FLOAT)
        return self._make(Op.DIV, x, y)

    def __floordiv__(self, other: Operand) -> Tensor:
        """Quotient of integers, rounded towards -inf."""
        return self._make(Op.FLOOR_DIV, *promoted(self, other))

    def __mod__(self, other: Operand) -> Tensor:
        """Remainder with the sign of the divisor, as Python and torch.remainder give it."""
        x, y = promoted(self, other)
        r = self._make(Op.MOD, x, y)
        differs = ((r < 0) & (y > 0)) | ((r > 0) & (y < 0))
        return select(differs, r + y, r)

    def fmod(self, other: Operand) -> Tensor:
        """Remainder with the sign of the dividend."""
        return self._make(Op.MOD, *promoted(self, other))

    def __pow__(self, exponent: int) -> Tensor:
        """An integer power by repeated squaring; a negative one is the reciprocal of the positive."""
        if exponent < 0:
            return (self**-exponent).recip()
        result: Tensor | None = None
        square = self
        while exponent:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            square = square * square if exponent else square
        return full(self.builder, 1, self.shape, self.dtype) if result is None else result

    def __radd__(self, other: Scalar) -> Tensor:
        return self + other

    def __rmul__(self, other: Scalar) -> Tensor:
        return self * other

    def __rsub__(self, other: Scalar) -> Tensor:
        return -self + other

    def __rtruediv__(self, other: Scalar) -> Tensor:
        y, x = promoted(self, other)
        return x / y

    # Comparison and logic; all give bools. A NaN compares false.

    def __lt__(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        if x.dtype is DType.BOOL:
            x, y = x.cast(DType.I32), y.cast(DType.I32)
        return self._make(Op.LESS_THAN, x, y)

    def __gt__(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        return y < x

    def __le__(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        return ~(y < x) & x._is_ordered_with(y)

    def __ge__(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        return y <= x

    def eq(self, other: Operand) -> Tensor:
        x, y = promoted(self, other)
        return ~((x < y) | (y < x)) & x._is_ordered_with(y)

    def ne(self, other: Operand) -> Tensor:
        return ~self.eq(other)

    def isnan(self) -> Tensor:
        """True where the value is no number: below neither +inf nor above -inf."""
        if not is_float(self.dtype):
            return full(self.builder, False, self.shape, DType.BOOL)
        return ~((self < float("inf")) | (self > float("-inf")))

    def __and__(self, other: Tensor) -> Tensor:
        x, y = _bools(self, other)
        return select(x, y, False)

    def __or__(self, other: Tensor) -> Tensor:
        x, y = _bools(self, other)
        return select(x, True, y)

    def __invert__(self) -> Tensor:
        _bools(self)
        return self.cast(DType.I32) < 1

    def __bool__(self) -> bool:
        """Refused: no branch of a program can hang on a value that it has only when it is run."""
        raise GraphError("a tensor has no truth value while its graph is being built; use where, &, | or ~")

    def __eq__(self, other: object) -> bool:
        """Refused: Python expects a bool. `eq` and `ne` compare elements."""
        raise GraphError("tensors are compared by eq and ne, not by == and !=")

    __hash__ = object.__hash__

    # One primitive each.

    def exp2(self) -> Tensor:
        return self._unary(Op.EXP2)

    def log2(self) -> Tensor:
        return self._unary(Op.LOG2)

    def sin(self) -> Tensor:
        return self._unary(Op.SIN)

    def sqrt(self) -> Tensor:
        return self._unary(Op.SQRT)

    def recip(self) -> Tensor:
        return self._unary(Op.RECIP)

    def sum(self, axis: int | tuple[int, ...] | None = None, keepdim: bool = False) -> Tensor:
        """Sum over `axis` (all axes if None); bools count as i32."""
        x = self.cast(DType.I32) if self.dtype is DType.BOOL else self
        return x._reduce(Op.SUM, axis, keepdim)

    def max(self, axis: int | tuple[int, ...] | None = None, keepdim: bool = False) -> Tensor:
        return self._reduce(Op.MAX, axis, keepdim)

    def min(self, axis: int | tuple[int, ...] | None = None, keepdim: bool = False) -> Tensor:
        """Smallest over `axis`; for i32 exact except that -2^31 has no negative."""
        return -(-self).max(axis, keepdim)

    # Views.

    def permute(self, *axes: int) -> Tensor:
        normal = tuple(normal_axis(axis, self.rank) for axis in axes)
        if normal == tuple(range(self.rank)):
            return self
        return self._make(Op.PERMUTE, self, attr=normal)

    def transpose(self, a: int, b: int) -> Tensor:
        axes = list(range(self.rank))
        a, b = normal_axis(a, self.rank), normal_axis(b, self.rank)
        axes[a], axes[b] = axes[b], axes[a]
        return self.permute(*axes)

    def reshape(self, *shape: Size) -> Tensor:
        """The same elements in row-major order; one -1 stands for what remains."""
        resolved = resolve_reshape(self.shape, shape)
        node = self.node
        while node.op is Op.RESHAPE:
            (node,) = node.inputs
        base = Tensor(self.builder, node)
        return base if resolved == base.shape else self._make(Op.RESHAPE, base, shape=resolved)

    def unsqueeze(self, axis: int) -> Tensor:
        position = normal_axis(axis, self.rank + 1)
        return self.reshape(*self.shape[:position], 1, *self.shape[position:])

    def squeeze(self, axis: int) -> Tensor:
        position = normal_axis(axis, self.rank)
        return self.reshape(*self.shape[:position], *self.shape[position + 1 :])

    def insert_axis(self, position: int, size: Size) -> Tensor:
        """A new axis of `size` at `position`, along which the values repeat."""
        shape = (*self.shape[:position], size, *self.shape[position:])
        return self._make(Op.EXPAND, self, attr=position, shape=shape)

    def broadcast_to(self, shape: Shape) -> Tensor:
        """Repeat along new leading axes and axes of size 1.

        Raises:
            ShapeError: an axis is neither 1 nor what `shape` says.
        """
        if broadcast_shapes(self.shape, shape) != shape:
            raise ShapeError(f"{list(self.shape)} does not broadcast to {list(shape)}")
        lead = len(shape) - self.rank
        repeats = [d for d in range(len(shape)) if d < lead or self.shape[d - lead] != shape[d]]
        x = self.reshape(*(size for d, size in enumerate(self.shape) if d + lead not in repeats))
        for d in repeats:
            x = x.insert_axis(d, shape[d])
        return x

    def __getitem__(self, key: Key | tuple[Key, ...]) -> Tensor:
        """Basic indexing with integers, slices, None and ...; or i32 tensors, one per leading axis.

        `x[i, j]` with tensors of one shape I gives shape I + x.shape[2:].
        """
        keys = key if isinstance(key, tuple) else (key,)
        if any(isinstance(k, Tensor) for k in keys):
            return self._gather(keys)
        x, axis = self, 0
        for k in _without_ellipsis(keys, self.rank):
            if k is None:
                x, axis = x.unsqueeze(axis), axis + 1
            elif isinstance(k, slice):
                x, axis = x._slice(axis, resolve_slice(k, x.shape[axis])), axis + 1
            else:
                x = x._slice(axis, resolve_slice(k, x.shape[axis])).squeeze(axis)
        return x

    def scatter(self, indices: tuple[Tensor, ...], source: Tensor) -> Tensor:
        """A copy with `source[idx, ...]` at coordinates `indices[0][idx], ...`; those outside are dropped."""
        return self._make(Op.SCATTER, self, *indices, source.cast(self.dtype))

    def _gather(self, keys: tuple[Key, ...]) -> Tensor:
        indices = [k for k in keys if isinstance(k, Tensor)]
        if len(indices) != len(keys):
            raise ShapeError("index tensors do not mix with other indices; take views first")
        shape = broadcast_shapes(*(i.shape for i in indices))
        return self._make(Op.GATHER, self, *(i.broadcast_to(shape) for i in indices))

    def _slice(self, axis: int, spec: SliceSpec) -> Tensor:
        shape = (*self.shape[:axis], spec.extent, *self.shape[axis + 1 :])
        if spec.is_whole(self.shape[axis]):
            return self
        return self._make(Op.SLICE, self, attr=(axis, spec.start, spec.step), shape=shape)

    def _reduce(self, op: Op, axis: int | tuple[int, ...] | None, keepdim: bool) -> Tensor:
        chosen = range(self.rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        axes = sorted({normal_axis(a, self.rank) for a in chosen}, reverse=True)
        x = self
        for a in axes:
            x = self._make(op, x, attr=a)
        if keepdim:
            x = x.reshape(*(1 if d in axes else size for d, size in enumerate(self.shape)))
        return x

    def _unary(self, op: Op) -> Tensor:
        return self._make(op, self if is_float(self.dtype) else self.cast(DEFAULT_FLOAT))

    def _is_ordered_with(self, other: Tensor) -> Tensor:
        return ~(self.isnan() | other.isnan())

    def _refuse_bool(self, sign: str) -> None:
        if self.dtype is DType.BOOL:
            raise DTypeError(f"{sign} of a bool has no meaning; use ~ or cast")

    def _make(
        self,
        op: Op,
        *operands: Tensor,
        attr: str | int | tuple[int, ...] | tuple[int, Size, int] | None = None,
        shape: Shape | None = None,
        dtype: DType | None = None,
    ) -> Tensor:
        if any(x.builder is not self.builder for x in operands):
            raise ShapeError("the operands belong to different graphs")
        nodes = tuple(x.node for x in operands)
        made = self.builder.node(op, nodes, attr, shape=shape, dtype=dtype, source=calling_line())
        return Tensor(self.builder, made)


Operand: TypeAlias = Tensor | Scalar
Key: TypeAlias = Tensor | Size | slice | EllipsisType | None


def full(builder: GraphBuilder, value: Scalar, shape: Shape, dtype: DType) -> Tensor:
    """A tensor of one repeated constant."""
    return Tensor(builder, builder.const(value, dtype)).broadcast_to(shape)


def promoted(*operands: Operand) -> tuple[Tensor, ...]:
    """The operands in the dtype of their common promotion, broadcast to one shape.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    tensors = [x for x in operands if isinstance(x, Tensor)]
    dtype = result_dtype(map(_dtype_and_rank, operands))
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(
        x.cast(dtype).broadcast_to(shape)
        if isinstance(x, Tensor)
        else full(tensors[0].builder, _converted(x, dtype), shape, dtype)
        for x in operands
    )


def select(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """`x` where `condition` is true, else `y`: torch.where. At least the condition is a tensor."""
    _bools(condition)
    tensors = [t for t in (condition, x, y) if isinstance(t, Tensor)]
    shape = broadcast_shapes(*(t.shape for t in tensors))
    dtype = result_dtype(map(_dtype_and_rank, (x, y)))
    sides = [
        t.cast(dtype).broadcast_to(shape)
        if isinstance(t, Tensor)
        else full(condition.builder, _converted(t, dtype), shape, dtype)
        for t in (x, y)
    ]
    nodes = (condition.broadcast_to(shape).node, *(t.node for t in sides))
    return Tensor(condition.builder, condition.builder.node(Op.SELECT, nodes))


def widened(x: Tensor) -> Tensor:
    """Half floats as f32, so that products keep their bits until the sum rounds once."""
    return x.cast(DType.F32) if x.dtype in HALVES else x


def _dtype_and_rank(x: Operand) -> tuple[DType, Rank]:
    if isinstance(x, Tensor):
        return x.dtype, Rank.DIMENSIONED if x.rank else Rank.ZERO_DIM
    return scalar_dtype(x), Rank.SCALAR


def _converted(value: Scalar, dtype: DType) -> Scalar:
    if dtype is DType.BOOL:
        return bool(value)
    return int(value) if dtype is DType.I32 else float(value)


def _bools(*tensors: Tensor) -> tuple[Tensor, ...]:
    if any(x.dtype is not DType.BOOL for x in tensors):
        raise DTypeError(f"expected bools, got {', '.join(x.dtype for x in tensors)}")
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x.broadcast_to(shape) for x in tensors)


def _without_ellipsis(keys: tuple[Key, ...], rank: int) -> list[Size | slice | None]:
    plain = [k for k in keys if not isinstance(k, Tensor | EllipsisType)]
    taken = sum(k is not None for k in plain)
    if taken > rank or len(keys) - len(plain) > 1:
        raise ShapeError(f"{len(plain)} indices do not fit {rank} axes")
    at = next((d for d, k in enumerate(keys) if isinstance(k, EllipsisType)), len(plain))
    return [*plain[:at], *[slice(None)] * (rank - taken), *plain[at:]]
