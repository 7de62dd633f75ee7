"""Weights stored as they are read: the graph gives the same, and what nobody shares stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import linear, matmul
from compiler.ir import DType, evaluate
from compiler.lower.weight_views import store_views
from compiler.nn import Conv2d

Write = Callable[[Trace], Mapping[str, Tensor]]


def row(trace: Trace) -> Tensor:
    return trace.input("x", (3, 12), DType.F32)


def in_out(t: Trace) -> Mapping[str, Tensor]:
    return {"y": linear(row(t), t.weight("w", (12, 8), DType.F32).permute(1, 0))}


def product(t: Trace) -> Mapping[str, Tensor]:
    return {"y": matmul(row(t), t.weight("w", (12, 8), DType.F32))}


def convolution(t: Trace) -> Mapping[str, Tensor]:
    image = t.input("x", (1, 2, 6, 6), DType.F32)
    return {"y": Conv2d(t.weight("w", (8, 2, 3, 2), DType.F32))(image)}


def turned_twice(t: Trace) -> Mapping[str, Tensor]:
    w = t.weight("w", (3, 4, 8), DType.F32).permute(2, 0, 1).reshape(8, 12)
    return {"y": linear(row(t), w)}


def read_both_ways(t: Trace) -> Mapping[str, Tensor]:
    w = t.weight("w", (12, 12), DType.F32)
    return {"y": linear(linear(row(t), w), w.permute(1, 0))}


def an_output_too(t: Trace) -> Mapping[str, Tensor]:
    w = t.weight("w", (12, 8), DType.F32)
    return {"w2": w, "y": linear(row(t), w.permute(1, 0))}


def a_bias(t: Trace) -> Mapping[str, Tensor]:
    return {"y": row(t) + t.weight("w", (12,), DType.F32).reshape(1, 12)}


@pytest.mark.parametrize(
    ("write", "shape"),
    [(in_out, (8, 12)), (product, (8, 12)), (convolution, (8, 12)), (turned_twice, (8, 12))],
)
def test_a_matrix_lies_as_its_readers_see_it(write: Write, shape: tuple[int, ...]) -> None:
    trace = Trace()
    graph = trace.finish(write(trace))
    lying = store_views(graph)
    assert lying.graph.weights["w"].shape == shape
    rng = np.random.default_rng(0)
    w, x = (
        rng.integers(-9, 9, leaf.shape).astype(np.float32) for leaf in (graph.weights["w"], graph.inputs["x"])
    )
    stored = lying.stored("w", w)
    assert stored.shape == shape
    assert stored.flags.c_contiguous
    np.testing.assert_array_equal(
        evaluate(lying.graph, {"x": x, "w": stored})["y"], evaluate(graph, {"x": x, "w": w})["y"]
    )


@pytest.mark.parametrize("write", [read_both_ways, an_output_too, a_bias])
def test_what_is_read_otherwise_too_stays(write: Write) -> None:
    trace = Trace()
    graph = trace.finish(write(trace))
    lying = store_views(graph)
    assert lying.graph is graph
    w = np.zeros(graph.weights["w"].shape, np.float32)
    assert lying.stored("w", w) is w
