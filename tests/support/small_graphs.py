"""Small graphs that are compiled by themselves: each is a function that writes one into a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from compiler.frontend import Tensor, Trace
from compiler.frontend import functional as f
from compiler.ir import DType, Graph, Shape, bind, round_to_bf16, symbol

T, N = symbol("T", 1, 64), symbol("N", 2, 20)
SIZES = ({"T": 5, "N": 6}, {"T": 1, "N": 2}, {"T": 64, "N": 20})
SMALL_GRAPHS: dict[str, Callable[[Trace], Mapping[str, Tensor]]] = {}


def _graph(write: Callable[[Trace], Mapping[str, Tensor]]) -> Callable[[Trace], Mapping[str, Tensor]]:
    SMALL_GRAPHS[write.__name__] = write
    return write


def small_graph(name: str) -> Graph:
    """The verified graph of that name."""
    trace = Trace()
    return trace.finish(SMALL_GRAPHS[name](trace))


def random_arrays(
    signatures: Mapping[str, tuple[Shape, DType]], sizes: Mapping[str, int], seed: int = 0
) -> dict[str, np.ndarray]:
    """An array in storage form for each tensor: normal floats, integers 0 to 3."""
    rng = np.random.default_rng(seed)
    found: dict[str, np.ndarray] = {}
    for name, (shape, dtype) in signatures.items():
        values = rng.standard_normal(tuple(bind(n, sizes) for n in shape)).astype(np.float32)
        if dtype is DType.BF16:
            found[name] = round_to_bf16(values)
        elif dtype is DType.F32:
            found[name] = values
        elif dtype is DType.F16:
            found[name] = values.astype(np.float16)
        else:
            found[name] = (np.abs(values * 2).astype(np.int32) % 4).astype(
                bool if dtype is DType.BOOL else np.int32
            )
    return found


@_graph
def mlp(t: Trace) -> Mapping[str, Tensor]:
    x = t.input("x", (3, 64), DType.F32)
    up, down = t.weight("up", (96, 64), DType.F32), t.weight("down", (10, 96), DType.F32)
    return {"y": f.linear(f.relu(f.linear(x, up, t.weight("bias", (96,), DType.F32))), down)}


@_graph
def mlp_of_any_rows(t: Trace) -> Mapping[str, Tensor]:
    x = t.input("x", (T, 64), DType.F32)
    up, down = t.weight("up", (96, 64), DType.F32), t.weight("down", (10, 96), DType.BF16)
    return {"y": f.linear(f.gelu(f.linear(x, up)), down)}


@_graph
def leaves(t: Trace) -> Mapping[str, Tensor]:
    """Outputs that are an input, a weight and a number."""
    x, w = t.input("x", (3, 5), DType.F32), t.weight("w", (4, 3), DType.BF16)
    return {"same": x, "next": x + 1, "turned": w.permute(1, 0), "number": t.full(2.5, (), DType.F32)}


@_graph
def integer_leaves(t: Trace) -> Mapping[str, Tensor]:
    x, b = t.input("x", (3, 5), DType.I32), t.input("b", (3, 5), DType.BOOL)
    return {"same": x, "next": x + 1, "wide": x.cast(DType.F32), "bools": b, "others": ~b}


@_graph
def views(t: Trace) -> Mapping[str, Tensor]:
    """Views of one value, beside the value itself, twice."""
    y = f.softmax(t.input("x", (3, 5), DType.F32), 1)
    shown = {"turned": y.permute(1, 0), "part": y[:, 1:3], "flat": y.reshape(15), "wide": y.insert_axis(0, 2)}
    return {**shown, "y": y, "again": y}


@_graph
def padded(t: Trace) -> Mapping[str, Tensor]:
    return {"y": f.pad(t.input("x", (3, 5), DType.F32) * 2, 1, 2, 3)}


@_graph
def padded_rows(t: Trace) -> Mapping[str, Tensor]:
    return {"y": f.pad(t.input("x", (N, 5), DType.F32) * 2, 0, 2, 3, 7.0)}


@_graph
def padded_product(t: Trace) -> Mapping[str, Tensor]:
    x, w = t.input("x", (3, 8), DType.F32), t.weight("w", (6, 8), DType.F32)
    return {"y": f.pad(f.linear(x, w), 1, 2, 3)}


@_graph
def joined(t: Trace) -> Mapping[str, Tensor]:
    x, z = t.input("x", (3, 5), DType.F32), t.input("z", (3, 4), DType.F32)
    return {"y": f.concat([x, f.exp(z), x], 1)}


@_graph
def joined_rows(t: Trace) -> Mapping[str, Tensor]:
    x, z = t.input("x", (N, 5), DType.F32), t.input("z", (T, 5), DType.F32)
    return {"y": f.concat([x, z], 0)}


@_graph
def product_of_joined(t: Trace) -> Mapping[str, Tensor]:
    x, w = t.input("x", (3, 8), DType.F32), t.weight("w", (6, 8), DType.F32)
    return {"y": f.linear(f.concat([x, f.linear(x, w)], 1), t.weight("v", (5, 14), DType.F32))}


@_graph
def bf16_arithmetic(t: Trace) -> Mapping[str, Tensor]:
    x, z = t.input("x", (3, 5), DType.BF16), t.input("z", (3, 5), DType.BF16)
    return {
        "y": (x + z) * x,
        "largest": x.max(1),
        "total": (x * z).sum(1),
        "less": x < z,
        "power": x.exp2(),
        "positive": f.relu(x),
        "larger": f.maximum(x, x * -1.5),
    }


@_graph
def f16_arithmetic(t: Trace) -> Mapping[str, Tensor]:
    x, z = t.input("x", (3, 5), DType.F16), t.input("z", (3, 5), DType.F16)
    return {"y": (x + z) * x, "largest": x.max(1), "total": x.sum(1), "shifted": x + 0.5}


@_graph
def bf16_product(t: Trace) -> Mapping[str, Tensor]:
    x, w = t.input("x", (3, 32), DType.BF16), t.weight("w", (32, 16), DType.BF16)
    return {"y": f.matmul(x, w)}


@_graph
def batched_product(t: Trace) -> Mapping[str, Tensor]:
    x, z = t.input("x", (2, 7, 32), DType.F32), t.input("z", (2, 32, 9), DType.F32)
    return {"y": f.matmul(x, z)}


@_graph
def a_scalar(t: Trace) -> Mapping[str, Tensor]:
    return {"y": f.exp(t.input("x", (), DType.F32))}
