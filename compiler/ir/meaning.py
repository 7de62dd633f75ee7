"""What each op computes, in NumPy, on compute values: float32 (or float64), int32 and bool arrays.

The functions never warn: NaN and infinities are ordinary values here. `reference.py` rounds to half floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from compiler.errors import EvaluationError, IndexOutOfRange
from compiler.ir.dtype import Array, DType, is_float

_P = ParamSpec("_P")
_I32_MIN = -(2**31)


def _quiet(function: Callable[_P, Array]) -> Callable[_P, Array]:
    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> Array:
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return wrapped


@_quiet
def exp2(x: Array) -> Array:
    return _array(np.exp2(x))


@_quiet
def log2(x: Array) -> Array:
    return _array(np.log2(x))


@_quiet
def sin(x: Array) -> Array:
    return _array(np.sin(x))


@_quiet
def sqrt(x: Array) -> Array:
    return _array(np.sqrt(x))


@_quiet
def recip(x: Array) -> Array:
    return _array(np.divide(x.dtype.type(1), x))


@_quiet
def add(x: Array, y: Array) -> Array:
    return _array(np.add(x, y))


@_quiet
def mul(x: Array, y: Array) -> Array:
    return _array(np.multiply(x, y))


@_quiet
def mod(x: Array, y: Array) -> Array:
    _refuse_zero(y)
    return _array(np.fmod(x, y))


@_quiet
def less_than(x: Array, y: Array) -> Array:
    return _array(np.less(x, y))


@_quiet
def sum_axis(x: Array, axis: int) -> Array:
    return _array(np.sum(x, axis=axis, dtype=x.dtype))


@_quiet
def max_axis(x: Array, axis: int) -> Array:
    identity = _I32_MIN if x.dtype == np.int32 else -np.inf
    return _array(np.max(x, axis=axis, initial=identity))


def gather(data: Array, *indices: Array) -> Array:
    for axis, index in enumerate(indices):
        extent = data.shape[axis]
        if index.size and (index.min() < 0 or index.max() >= extent):
            raise IndexOutOfRange(axis, extent, int(index.min()), int(index.max()))
    return _array(data[tuple(indices)])


def scatter(dest: Array, *indices_then_src: Array) -> Array:
    *indices, src = indices_then_src
    kept = np.ones(indices[0].shape, dtype=np.bool_)
    for axis, index in enumerate(indices):
        kept &= (index >= 0) & (index < dest.shape[axis])
    result = dest.copy()
    result[tuple(index[kept] for index in indices)] = src[kept]
    return result


@_quiet
def cast(x: Array, dtype: DType, floats: npt.DTypeLike = np.float32) -> Array:
    """Convert to `dtype`'s compute type, `floats` for all floats; the caller rounds to a half float."""
    if is_float(dtype):
        return x.astype(floats)
    if dtype is DType.BOOL:
        return _array(x != 0)
    if x.dtype.kind != "f":
        return x.astype(np.int32)
    fits = (x > _I32_MIN - 1.0) & (x < 2.0**31)
    if x.dtype == np.float32:  # -2^31 - 1 is no float32; the nearest below is far smaller
        fits = (x >= _I32_MIN) & (x < 2.0**31)
    return np.where(fits, np.trunc(np.where(fits, x, 0)), _I32_MIN).astype(np.int32)


def iota(extent: int) -> Array:
    return np.arange(extent, dtype=np.int32)


def select(condition: Array, x: Array, y: Array) -> Array:
    return _array(np.where(condition, x, y))


@_quiet
def div(x: Array, y: Array) -> Array:
    return _array(np.divide(x, y))


@_quiet
def floor_div(x: Array, y: Array) -> Array:
    _refuse_zero(y)
    return _array(np.floor_divide(x, y))


def permute(x: Array, axes: tuple[int, ...]) -> Array:
    return np.transpose(x, axes)


def expand(x: Array, position: int, extent: int) -> Array:
    shape = (*x.shape[:position], extent, *x.shape[position:])
    return np.broadcast_to(np.expand_dims(x, position), shape)


def reshape(x: Array, shape: tuple[int, ...]) -> Array:
    return np.reshape(x, shape)


def slice_axis(x: Array, axis: int, start: int, step: int, extent: int) -> Array:
    stop = start + extent * step
    return x[(slice(None),) * axis + (slice(start, stop, step),)]


def _refuse_zero(divisor: Array) -> None:
    if divisor.dtype == np.int32 and not np.all(divisor):
        raise EvaluationError("an i32 is divided by zero")


def _array(value: Any) -> Array:
    return np.asarray(value)
