"""Convolutions over images [batch, channels, height, width], as views and one contraction.

A window is a gather at index arithmetic, which costs nothing: what remains is a product with a weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.errors import ShapeError
from compiler.frontend import Tensor
from compiler.frontend.functional import arange, linear, pad, rsqrt
from compiler.ir import DType
from compiler.nn.parameters import Parameters


@dataclass(frozen=True, slots=True)
class Conv2d:
    """weight [out, in, kernel height, kernel width] and, where the model has one, bias [out]."""

    weight: Tensor
    bias: Tensor | None = None
    stride: int = 1
    padding: int = 0

    @classmethod
    def of(cls, parameters: Parameters, stride: int = 1, padding: int = 0) -> Conv2d:
        return cls(parameters["weight"], parameters.optional("bias"), stride, padding)

    def __call__(self, x: Tensor) -> Tensor:
        """[batch, in, h, w] -> f32 [batch, out, h', w']."""
        channels, inner, *kernel = self.weight.shape
        if inner != x.shape[1]:
            raise ShapeError(f"a convolution of {inner} channels does not take {x.shape[1]}")
        height, width = (_fixed(n) for n in kernel)
        seen = windows(x, (height, width), self.stride, self.padding)
        batch, rows, columns = seen.shape[:3]
        patches = seen.reshape(batch, rows, columns, -1)
        flat = self.weight.permute(0, 2, 3, 1).reshape(channels, -1)
        return linear(patches, flat, self.bias).permute(0, 3, 1, 2)


@dataclass(frozen=True, slots=True)
class BatchNorm2d:
    """Normalise each channel by statistics that were fixed in training; all four are [channels]."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor
    eps: float = 1e-5

    @classmethod
    def of(cls, parameters: Parameters, eps: float = 1e-5) -> BatchNorm2d:
        names = ("weight", "bias", "running_mean", "running_var")
        weight, bias, mean, variance = (parameters[name] for name in names)
        return cls(weight, bias, mean, variance, eps)

    def __call__(self, x: Tensor) -> Tensor:
        """[batch, channels, h, w] -> f32 of that shape."""
        weight, bias, mean, variance = (
            v.cast(DType.F32).reshape(-1, 1, 1) for v in (self.weight, self.bias, self.mean, self.variance)
        )
        factor = weight * rsqrt(variance + self.eps)
        return x.cast(DType.F32) * factor + (bias - mean * factor)


def max_pool(x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
    """The largest of each window; what lies outside the image never is."""
    seen = windows(x, (size, size), stride, padding, outside=-math.inf)
    batch, rows, columns = seen.shape[:3]
    return seen.reshape(batch, rows, columns, size * size, -1).max(-2).permute(0, 3, 1, 2)


def windows(
    x: Tensor, size: tuple[int, int], stride: int = 1, padding: int = 0, outside: float = 0.0
) -> Tensor:
    """Every window of an image: [batch, h', w', *size, channels], `outside` where it leaves the image.

    Channels come last, so that a window is read in runs.

    Raises:
        ShapeError: an image that is smaller than a window.
    """
    x = x.permute(0, 2, 3, 1)
    for axis in (1, 2):
        x = pad(x, axis, padding, padding, outside) if padding else x
    rows, columns = (_places(x, axis, extent, stride) for axis, extent in zip((1, 2), size, strict=True))
    by_row = x.permute(1, 0, 2, 3)[rows,]
    by_both = by_row.permute(3, 0, 1, 2, 4)[columns,]
    return by_both.permute(4, 2, 0, 3, 1, 5)


def _places(x: Tensor, axis: int, extent: int, stride: int) -> Tensor:
    """i32 [windows, extent]: what each window reads along `axis`."""
    count = (_fixed(x.shape[axis]) - extent) // stride + 1
    if count < 1:
        raise ShapeError(f"a window of {extent} does not fit an axis of {x.shape[axis]}")
    return (arange(x.builder, count) * stride).unsqueeze(1) + arange(x.builder, extent)


def _fixed(size: object) -> int:
    if not isinstance(size, int):
        raise ShapeError(f"images and kernels have fixed sizes, not {size}")
    return size
