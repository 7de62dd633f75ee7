"""Shape and dtype rules of the ops: what they give for given operands, or a typed refusal.

Rules see shapes and dtypes, never nodes. A shape rule receives the operands' shapes, the op's attribute and
the declared shape (None where nothing is declared), and returns the result's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from compiler.errors import DTypeError, ShapeError
from compiler.ir.dim import Shape, Size, bounds, product
from compiler.ir.dtype import DType, is_float

SliceAttr: TypeAlias = tuple[int, Size, int]
Attr: TypeAlias = str | float | int | bool | tuple[int, ...] | SliceAttr | None


@dataclass(frozen=True, slots=True)
class ShapeRule:
    text: str
    apply: Callable[[tuple[Shape, ...], Attr, Shape | None], Shape]


@dataclass(frozen=True, slots=True)
class DTypeRule:
    text: str
    apply: Callable[[tuple[DType, ...], DType | None], DType]


def show(shape: Shape) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _same(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    if any(shape != shapes[0] for shape in shapes):
        raise ShapeError(f"shapes must be equal, got {' and '.join(map(show, shapes))}; expand them first")
    return shapes[0]


def _reduce(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    (shape,) = shapes
    axis = _int(attr)
    if not 0 <= axis < len(shape):
        raise ShapeError(f"axis {axis} is not one of {show(shape)}")
    return shape[:axis] + shape[axis + 1 :]


def _gather(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    data, *indices = shapes
    return _index_shape(data, indices) + data[len(indices) :]


def _scatter(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    dest, *indices, src = shapes
    expected = _index_shape(dest, indices) + dest[len(indices) :]
    if src != expected:
        raise ShapeError(f"scatter into {show(dest)} needs a source of {show(expected)}, got {show(src)}")
    return dest


def _index_shape(data: Shape, indices: list[Shape]) -> Shape:
    if not 1 <= len(indices) <= len(data):
        raise ShapeError(f"{len(indices)} index tensors do not address {show(data)}")
    return _same(tuple(indices), None, None)


def _one_axis(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    if declared is None or len(declared) != 1:
        raise ShapeError("iota has exactly one axis")
    return declared


def _permute(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    (shape,) = shapes
    axes = attr if isinstance(attr, tuple) else ()
    if sorted(map(_int, axes)) != list(range(len(shape))):
        raise ShapeError(f"permute{axes} needs each axis of {show(shape)} once")
    return tuple(shape[_int(axis)] for axis in axes)


def _expand(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    (shape,) = shapes
    position = _int(attr)
    if declared is None or not 0 <= position < len(declared):
        raise ShapeError(f"expand inserts an axis at {position}, outside its shape")
    if declared[:position] + declared[position + 1 :] != shape:
        raise ShapeError(f"expand at {position} of {show(shape)} cannot give {show(declared)}")
    return declared


def _reshape(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    (shape,) = shapes
    if declared is None or product(shape) != product(declared):
        raise ShapeError(f"reshape of {show(shape)} cannot give {show(declared or ())}: sizes differ")
    return declared


def _slice(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    (shape,) = shapes
    if not isinstance(attr, tuple) or len(attr) != 3:
        raise ShapeError("slice needs (axis, start, step)")
    axis, start, step = _int(attr[0]), attr[1], _int(attr[2])
    if not 0 <= axis < len(shape) or declared is None or len(declared) != len(shape):
        raise ShapeError(f"slice of axis {axis} of {show(shape)} cannot give {show(declared or ())}")
    if declared[:axis] + declared[axis + 1 :] != shape[:axis] + shape[axis + 1 :]:
        raise ShapeError(f"slice of axis {axis} of {show(shape)} changes another axis: {show(declared)}")
    slack = shape[axis] - 1 - (start + (declared[axis] - 1) * step)
    is_empty = declared[axis] == 0
    if step < 1 or bounds(start)[0] < 0 or (bounds(slack)[0] < 0 and not is_empty):
        raise ShapeError(
            f"slice start {start} step {step} length {declared[axis]} may leave axis {axis} of {show(shape)}"
        )
    return declared


def _declared(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    if declared is None:
        raise ShapeError("a leaf needs a shape")
    return declared


def _scalar(shapes: tuple[Shape, ...], attr: Attr, declared: Shape | None) -> Shape:
    if declared:
        raise ShapeError(f"a constant is a scalar, not {show(declared)}; expand it")
    return ()


def _int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ShapeError(f"expected an integer attribute, got {value!r}")
    return value


def _all_equal(dtypes: tuple[DType, ...]) -> DType:
    if any(dtype != dtypes[0] for dtype in dtypes):
        raise DTypeError(f"dtypes must be equal, got {', '.join(dtypes)}; cast first")
    return dtypes[0]


def _float(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    dtype = _all_equal(dtypes)
    if not is_float(dtype):
        raise DTypeError(f"expected floats, got {dtype}")
    return dtype


def _number(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    dtype = _all_equal(dtypes)
    if dtype is DType.BOOL:
        raise DTypeError("expected numbers, got bool; cast first")
    return dtype


def _integer(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    dtype = _all_equal(dtypes)
    if dtype is not DType.I32:
        raise DTypeError(f"expected i32, got {dtype}")
    return dtype


def _compare(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    _number(dtypes, None)
    return DType.BOOL


def _select(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    condition, *sides = dtypes
    if condition is not DType.BOOL:
        raise DTypeError(f"select needs a bool condition, got {condition}")
    return _all_equal(tuple(sides))


def _gather_dtype(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    data, *indices = dtypes
    _integer(tuple(indices), None)
    return data


def _scatter_dtype(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    dest, *indices, src = dtypes
    _integer(tuple(indices), None)
    return _all_equal((dest, src))


def _same_dtype(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    return dtypes[0]


def _declared_dtype(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    if declared is None:
        raise DTypeError("this op needs a declared dtype")
    return declared


def _i32(dtypes: tuple[DType, ...], declared: DType | None) -> DType:
    return DType.I32


SAME = ShapeRule("all operands and the result have one shape", _same)
REDUCE = ShapeRule("the operand's shape without the axis", _reduce)
GATHER = ShapeRule("I + data.shape[m:]", _gather)
SCATTER = ShapeRule("dest.shape", _scatter)
ONE_AXIS = ShapeRule("[n]", _one_axis)
PERMUTE = ShapeRule("out axis d is in axis axes[d]", _permute)
EXPAND = ShapeRule("a new axis at the position", _expand)
RESHAPE = ShapeRule("any shape of equal size, row-major", _reshape)
SLICE = ShapeRule("out[i] = in[start + i * step] on the axis", _slice)
DECLARED = ShapeRule("as declared", _declared)
SCALAR = ShapeRule("[]", _scalar)

FLOAT = DTypeRule("floats -> the same", _float)
NUMBER = DTypeRule("floats or i32 -> the same", _number)
INTEGER = DTypeRule("i32 -> i32", _integer)
COMPARE = DTypeRule("floats or i32 -> bool", _compare)
SELECT_DTYPE = DTypeRule("bool, then two equal dtypes -> that dtype", _select)
GATHER_DTYPE = DTypeRule("any data, i32 indices -> the data's", _gather_dtype)
SCATTER_DTYPE = DTypeRule("any dest, i32 indices, src as dest -> the dest's", _scatter_dtype)
ANY_CAST = DTypeRule("any -> the node's", _declared_dtype)
I32_RESULT = DTypeRule("-> i32", _i32)
SAME_DTYPE = DTypeRule("any -> the same", _same_dtype)
DECLARED_DTYPE = DTypeRule("-> as declared", _declared_dtype)
