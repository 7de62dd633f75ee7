"""What neural networks need beyond one op, composed of primitives; nothing later recognises a composition.

Exponentials are EXP2 of a scaled argument, a division by a sum is a product with its reciprocal, and a mask
is 0 or -inf added: the forms that the compiler's algebra can move through reductions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

from compiler.errors import DTypeError, ShapeError
from compiler.frontend.promotion import Rank, result_dtype
from compiler.frontend.shapes import normal_axis
from compiler.frontend.tensor import Operand, Scalar, Tensor, full, promoted, select, widened
from compiler.ir import DType, GraphBuilder, Op, Size, bounds, is_float
from compiler.ir.dtype import HALVES

LOG2_E = math.log2(math.e)
LN_2 = math.log(2.0)
_ERF_SCALE = 0.3275911
_ERF_SERIES = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)

_P = ParamSpec("_P")


def _in_f32(function: Callable[Concatenate[Tensor, _P], Tensor]) -> Callable[Concatenate[Tensor, _P], Tensor]:
    """Compute a half float in f32 throughout and round once, as PyTorch does; its steps would round each."""

    @wraps(function)
    def widened_function(x: Tensor, /, *args: _P.args, **kwargs: _P.kwargs) -> Tensor:
        result = function(widened(x), *args, **kwargs)
        return result.cast(x.dtype) if x.dtype in HALVES else result

    return widened_function


def arange(builder: GraphBuilder, extent: Size) -> Tensor:
    """0, 1, .., extent-1 as i32."""
    return Tensor(builder, builder.node(Op.IOTA, (), shape=(extent,), dtype=DType.I32))


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """`x` where `condition`, else `y`; what is not taken has no effect, not even a NaN."""
    return select(condition, x, y)


def additive_mask(condition: Tensor) -> Tensor:
    """0 where `condition` is true and -inf where not, to be added before a softmax."""
    if condition.dtype is not DType.BOOL:
        raise DTypeError(f"a mask is made from a bool, not {condition.dtype}")
    return condition.cast(DType.F32).log2()


@_in_f32
def exp(x: Tensor) -> Tensor:
    return (x * LOG2_E).exp2()


@_in_f32
def log(x: Tensor) -> Tensor:
    return x.log2() * LN_2


@_in_f32
def cos(x: Tensor) -> Tensor:
    """Cosine as a shifted sine; for |x| beyond a few hundred use a table instead."""
    return (x + math.pi / 2).sin()


@_in_f32
def rsqrt(x: Tensor) -> Tensor:
    return x.sqrt().recip()


@_in_f32
def sigmoid(x: Tensor) -> Tensor:
    return ((x * -LOG2_E).exp2() + 1).recip()


@_in_f32
def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


@_in_f32
def tanh(x: Tensor) -> Tensor:
    """2 sigmoid(2x) - 1: absolute, not relative, accuracy near 0."""
    return sigmoid(x * 2) * 2 - 1


@_in_f32
def erf(x: Tensor) -> Tensor:
    """The error function, within 5e-7. Source: Abramowitz and Stegun, 7.1.26."""
    size = absolute(x)
    t = (size * _ERF_SCALE + 1).recip()
    series = t * _ERF_SERIES[-1]
    for coefficient in reversed(_ERF_SERIES[:-1]):
        series = (series + coefficient) * t
    rest = series * exp(-(x * x))
    return select(x < 0, rest - 1, 1 - rest)


@_in_f32
def gelu(x: Tensor) -> Tensor:
    """x times the normal distribution's share below it, by `erf`."""
    return x * (erf(x * math.sqrt(0.5)) + 1) * 0.5


@_in_f32
def gelu_tanh(x: Tensor) -> Tensor:
    """GELU's approximation by a tanh, which is a sigmoid of twice its argument."""
    return x * sigmoid((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi)))


def soft_cap(x: Tensor, cap: float) -> Tensor:
    """cap * tanh(x / cap): near x where that is small, and never beyond the cap."""
    return tanh(x * (1 / cap)) * cap


def relu(x: Tensor) -> Tensor:
    return select(x < 0, 0, x)


def absolute(x: Tensor) -> Tensor:
    """|x|, with |-0.0| = 0.0."""
    return select(x > 0, x, 0 - x)


def maximum(x: Operand, y: Operand) -> Tensor:
    """The larger; a NaN on either side wins."""
    a, b = promoted(x, y)
    larger = select(b < a, a, b)
    return select(a.isnan(), a, larger) if is_float(a.dtype) else larger


def minimum(x: Operand, y: Operand) -> Tensor:
    """The smaller; a NaN on either side wins."""
    a, b = promoted(x, y)
    smaller = select(a < b, a, b)
    return select(a.isnan(), a, smaller) if is_float(a.dtype) else smaller


def clamp(x: Tensor, low: Scalar | None = None, high: Scalar | None = None) -> Tensor:
    raised = x if low is None else maximum(x, low)
    return raised if high is None else minimum(raised, high)


@_in_f32
def mean(x: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    """Sum times the reciprocal of the count, over one axis of a float tensor."""
    if not is_float(x.dtype):
        raise DTypeError(f"mean needs floats, got {x.dtype}; cast first")
    size = x.shape[normal_axis(axis, x.rank)]
    total = x.sum(axis, keepdim)
    if isinstance(size, int):
        return total * (1.0 / size if size else math.inf)
    count = full(x.builder, 1, (size,), DType.I32).sum(0).cast(DType.F32)
    return total * count.recip()


@_in_f32
def variance(x: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    """Mean squared distance from the mean (no Bessel correction), in two passes."""
    centred = x - mean(x, axis, keepdim=True)
    return mean(centred * centred, axis, keepdim)


@_in_f32
def softmax(x: Tensor, axis: int) -> Tensor:
    """exp(x - max) / sum, over `axis`. NaN where every element is -inf."""
    e = exp(x - x.max(axis, keepdim=True))
    return e * e.sum(axis, keepdim=True).recip()


@_in_f32
def log_sum_exp(x: Tensor, axis: int, keepdim: bool = False) -> Tensor:
    top = x.max(axis, keepdim=True)
    total = log(exp(x - top).sum(axis, keepdim=True)) + top
    return total if keepdim else total.squeeze(axis)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    """[.., i, k] @ [.., k, j], leading axes broadcast; half floats multiply and add in f32 and round once."""
    if x.rank < 2 or y.rank < 2:
        raise ShapeError(f"matmul needs two axes or more, got {list(x.shape)} and {list(y.shape)}")
    dtype = result_dtype(((x.dtype, Rank.DIMENSIONED), (y.dtype, Rank.DIMENSIONED)))
    left, right = widened(x.cast(dtype)).unsqueeze(-2), widened(y.cast(dtype)).transpose(-1, -2).unsqueeze(-3)
    return (left * right).sum(-1).cast(dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x [.., in] by weight [out, in], plus bias [out]; in f32, whatever the weight's dtype."""
    product = x.cast(DType.F32).unsqueeze(-2) * weight.cast(DType.F32)
    result = product.sum(-1)
    return result if bias is None else result + bias.cast(DType.F32)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x * 1/sqrt(mean(x^2) + eps) * weight over the last axis, in f32."""
    wide = x.cast(DType.F32)
    factor = rsqrt(mean(wide * wide, -1, keepdim=True) + eps)
    return wide * factor * weight.cast(DType.F32)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis, in f32."""
    wide = x.cast(DType.F32)
    centred = wide - mean(wide, -1, keepdim=True)
    factor = rsqrt(mean(centred * centred, -1, keepdim=True) + eps)
    return centred * factor * weight.cast(DType.F32) + bias.cast(DType.F32)


def concat(parts: Sequence[Tensor], axis: int) -> Tensor:
    """The parts one after another along `axis`, bits kept: a choice by position between reads of each."""
    if not parts:
        raise ShapeError("concat needs a part")
    axis = normal_axis(axis, parts[0].rank)
    dtype = result_dtype((p.dtype, Rank.DIMENSIONED) for p in parts)
    result = parts[0].cast(dtype)
    for part in parts[1:]:
        result = _append(result, part.cast(dtype), axis)
    return result


def pad(x: Tensor, axis: int, before: Size, after: Size, value: Scalar = 0) -> Tensor:
    """`before` and `after` copies of `value` around `x` along `axis`."""
    axis = normal_axis(axis, x.rank)
    position = arange(x.builder, before + x.shape[axis] + after)
    source = position - _index(x.builder, before)
    inside = ~(source < 0) & (source < _index(x.builder, x.shape[axis]))
    taken = _take(x, select(inside, source, 0), axis)
    return select(_along(inside, axis, x.rank), taken, value)


def take(x: Tensor, index: Tensor, axis: int = 0) -> Tensor:
    """The elements of `axis` that the i32 vector `index` names; the axis becomes the vector's."""
    if index.rank != 1:
        raise ShapeError(f"take needs a vector of indices, got {list(index.shape)}")
    return _take(x, index, normal_axis(axis, x.rank))


def _append(x: Tensor, y: Tensor, axis: int) -> Tensor:
    if x.shape[:axis] != y.shape[:axis] or x.shape[axis + 1 :] != y.shape[axis + 1 :]:
        raise ShapeError(f"{list(x.shape)} and {list(y.shape)} differ outside axis {axis}")
    position = arange(x.builder, x.shape[axis] + y.shape[axis])
    in_first = position < _index(x.builder, x.shape[axis])
    first = _take(x, select(in_first, position, 0), axis)
    second = _take(y, select(in_first, 0, position - _index(x.builder, x.shape[axis])), axis)
    return select(_along(in_first, axis, x.rank), first, second)


def _take(x: Tensor, index: Tensor, axis: int) -> Tensor:
    if bounds(x.shape[axis])[0] < 1:
        raise ShapeError(f"axis {axis} of {list(x.shape)} may be empty")
    to_front = (axis, *(d for d in range(x.rank) if d != axis))
    back = tuple(to_front.index(d) for d in range(x.rank))
    return x.permute(*to_front)[index,].permute(*back)


def _along(vector: Tensor, axis: int, rank: int) -> Tensor:
    """A vector laid along `axis` of `rank` axes, size 1 elsewhere."""
    return vector.reshape(*(vector.shape[0] if d == axis else 1 for d in range(rank)))


def _index(builder: GraphBuilder, size: Size) -> Tensor:
    """A size as an i32 scalar: a constant, or the number of ones that fit it."""
    if isinstance(size, int):
        return full(builder, size, (), DType.I32)
    return full(builder, 1, (size,), DType.I32).sum(0)
