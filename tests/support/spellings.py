"""Spellings of weighted means over exponentials, and relatives of them, in primitives only.

`SPELLINGS` maps a name to a builder of a graph whose output `out` can be computed in one pass over its keys,
or over its columns; no rule, op or schedule was written for any of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from compiler.frontend import Tensor, Trace
from compiler.frontend import functional as f
from compiler.frontend.functional import arange, maximum, where
from compiler.ir import DType, Graph
from tests.support.programs import COLUMNS, HEADS, HIDDEN, PROGRAMS, WIDTH, S, T

SPELLINGS: dict[str, Callable[[], Graph]] = {
    name: PROGRAMS[name] for name in ("probabilities", "centred_columns")
}
_SCALE = WIDTH**-0.5


def spelling(build: Callable[[Trace], Tensor]) -> Callable[[Trace], Tensor]:
    """List a builder under its own name."""

    def graph() -> Graph:
        trace = Trace()
        return trace.finish({"out": build(trace)})

    SPELLINGS[build.__name__] = graph
    return build


def _operands(trace: Trace) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [T, heads, 1, width], keys [heads, S, width], values [heads, S, width]."""
    query = trace.input("q", (T, HEADS, WIDTH), DType.F32).unsqueeze(2)
    return query, *(trace.input(name, (HEADS, S, WIDTH), DType.F32) for name in ("k", "v"))


def _places(trace: Trace) -> tuple[Tensor, Tensor]:
    return trace.input("positions", (T,), DType.I32).reshape(T, 1, 1), arange(trace.builder, S)


def _mean(weights: Tensor, values: Tensor) -> Tensor:
    """Weights [T, heads, S], not normalised, over values."""
    total = weights.sum(-1, keepdim=True)
    return (weights.unsqueeze(-1) * values).sum(2) * total.recip()


@spelling
def base_two(trace: Trace) -> Tensor:
    q, k, v = _operands(trace)
    s = (q * k).sum(-1) * (f.LOG2_E * _SCALE)
    return _mean((s - s.max(-1, keepdim=True)).exp2(), v)


@spelling
def natural(trace: Trace) -> Tensor:
    q, k, v = _operands(trace)
    s = (q * k).sum(-1) * _SCALE
    return _mean(f.exp(s - s.max(-1, keepdim=True)), v)


@spelling
def scaled_before(trace: Trace) -> Tensor:
    q, k, v = _operands(trace)
    s = ((q * _SCALE) * k).sum(-1)
    return _mean(f.exp(s - s.max(-1, keepdim=True)), v)


@spelling
def scaled_inside(trace: Trace) -> Tensor:
    """The scale goes on after the maximum is subtracted."""
    q, k, v = _operands(trace)
    s = (q * k).sum(-1)
    return _mean(f.exp((s - s.max(-1, keepdim=True)) * _SCALE), v)


@spelling
def normalised_first(trace: Trace) -> Tensor:
    """Weights are divided by their sum before they meet the values."""
    q, k, v = _operands(trace)
    s = (q * k).sum(-1) * _SCALE
    e = f.exp(s - s.max(-1, keepdim=True))
    return ((e / e.sum(-1, keepdim=True)).unsqueeze(-1) * v).sum(2)


@spelling
def mask_selected(trace: Trace) -> Tensor:
    (q, k, v), (own, keys) = _operands(trace), _places(trace)
    s = where(keys < own + 1, (q * k).sum(-1) * _SCALE, -math.inf)
    return _mean(f.exp(s - s.max(-1, keepdim=True)), v)


@spelling
def window_selected(trace: Trace) -> Tensor:
    (q, k, v), (own, keys) = _operands(trace), _places(trace)
    s = where((keys < own + 1) & (own - 5 < keys), (q * k).sum(-1) * _SCALE, -math.inf)
    return _mean(f.exp(s - s.max(-1, keepdim=True)), v)


@spelling
def sunk(trace: Trace) -> Tensor:
    """One more logit for each head, which takes weight and gives no value."""
    q, k, v = _operands(trace)
    sink = trace.weight("sink", (HEADS,), DType.F32).reshape(1, HEADS, 1)
    s = (q * k).sum(-1) * _SCALE
    top = maximum(s.max(-1, keepdim=True), sink)
    e = f.exp(s - top)
    total = e.sum(-1, keepdim=True) + f.exp(sink - top)
    return (e.unsqueeze(-1) * v).sum(2) * total.recip()


@spelling
def capped_base_two(trace: Trace) -> Tensor:
    (q, k, v), (own, keys) = _operands(trace), _places(trace)
    s = f.tanh((q * k).sum(-1) * (_SCALE / 30.0)) * 30.0 * f.LOG2_E
    s = s + f.additive_mask(keys < own + 1)
    return _mean((s - s.max(-1, keepdim=True)).exp2(), v)


@spelling
def log_probabilities(trace: Trace) -> Tensor:
    x = trace.input("x", (T, S), DType.F32)
    return x - f.log_sum_exp(x, 1, keepdim=True)


@spelling
def cross_entropy(trace: Trace) -> Tensor:
    x, target = trace.input("x", (T, S), DType.F32), trace.input("target", (T,), DType.I32)
    return f.log_sum_exp(x, 1) - x[arange(trace.builder, T), target]


@spelling
def normed_then_multiplied(trace: Trace) -> Tensor:
    x, g = trace.input("x", (T, HIDDEN), DType.F32), trace.weight("g", (HIDDEN,), DType.F32)
    return f.linear(f.rms_norm(x, g, 1e-5), trace.weight("w", (COLUMNS, HIDDEN), DType.F32))


@spelling
def centred_then_multiplied(trace: Trace) -> Tensor:
    """Centred, scaled to unit variance, and multiplied with a matrix."""
    x = trace.input("x", (T, HIDDEN), DType.F32)
    centred = x - f.mean(x, 1, keepdim=True)
    scale = f.rsqrt(f.variance(x, 1, keepdim=True) + 1e-5)
    return f.linear(centred * scale, trace.weight("w", (COLUMNS, HIDDEN), DType.F32))


@spelling
def spread_by_division(trace: Trace) -> Tensor:
    """Squares of differences from a mean, the mean a quotient, the square a power."""
    x = trace.input("x", (T, S), DType.F32)
    count = (x * 0.0 + 1.0).sum(1, keepdim=True)
    return ((x - x.sum(1, keepdim=True) / count) ** 2).sum(1)


@spelling
def spread_of_sums(trace: Trace) -> Tensor:
    """The variance of a sum of two tables."""
    x, y = (trace.input(name, (T, S), DType.F32) for name in ("x", "y"))
    return f.variance(x + y, 1)


@spelling
def joint_spread(trace: Trace) -> Tensor:
    """Products of the differences of two tables from their means."""
    x, y = (trace.input(name, (T, S), DType.F32) for name in ("x", "y"))
    return f.mean((x - f.mean(x, 1, keepdim=True)) * (y - f.mean(y, 1, keepdim=True)), 1)


ALL: Mapping[str, Callable[[], Graph]] = {**PROGRAMS, **SPELLINGS}
