"""Small graphs that views, casts and scatters are there for; like `programs`, but not built as kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.frontend import Trace
from compiler.frontend.functional import arange, linear
from compiler.ir import DType, Graph
from tests.support.programs import S, T, written_cache


def rounded() -> Graph:
    """Rounded values, widened and rounded once more."""
    trace = Trace()
    x = trace.input("x", (T, S), DType.BF16)
    return trace.finish({"out": x.cast(DType.F32).cast(DType.BF16).cast(DType.F32).sum(1)})


def sliced() -> Graph:
    """Every sixth of two axes read as one."""
    trace = Trace()
    x = trace.input("x", (T, 4, 6), DType.F32)
    return trace.finish({"out": x.reshape(T, 24)[:, ::6] * 2.0})


def wrapped() -> Graph:
    """Columns read from a place on, around the end."""
    trace = Trace()
    x = trace.input("x", (24, T), DType.F32)
    return trace.finish({"out": x[(arange(x.builder, 24) + 5).fmod(24),] * 2.0})


def merged() -> Graph:
    """A product over two axes that are one, cut and joined again on the way."""
    trace = Trace()
    x, w = trace.input("x", (T, 4, 6), DType.F32), trace.weight("w", (8, 24), DType.F32)
    return trace.finish({"out": linear(x.reshape(T, 24).reshape(T, 4, 6).reshape(T, 24), w)})


def scaled_by_one() -> Graph:
    trace = Trace()
    x = trace.input("x", (T, S), DType.F32)
    return trace.finish({"out": (x * 1.0).sum(1)})


def written() -> Graph:
    return written_cache(DType.F32)


VIEWED: Mapping[str, Callable[[], Graph]] = {
    f.__name__: f for f in (rounded, sliced, wrapped, merged, scaled_by_one, written)
}
