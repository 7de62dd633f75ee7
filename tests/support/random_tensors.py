"""Random computations on finite numbers, written through the frontend, for tests of the lowering.

`view_chains` only moves elements; `computations` also reduces, gathers and combines. Every value stays finite
and of moderate size, so that two float64 programs for it agree to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import strategies as st

from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import arange
from compiler.ir import DType, Graph, Size, bind, symbol

N = symbol("N", 1, 6)
DIMS = ({"N": 1}, {"N": 2}, {"N": 5})
_SIZES: tuple[Size, ...] = (1, 2, 3, 4, 6, N, N * 2)
_GROWN: tuple[Size, ...] = (2, 3, N)
_MOST_ELEMENTS = 3000


@st.composite
def view_chains(draw: st.DrawFn) -> Graph:
    """One input, up to eight views of it, and one operation that makes it a definition."""
    trace = Trace()
    x = trace.input("x", tuple(draw(st.lists(st.sampled_from(_SIZES), min_size=1, max_size=3))), DType.F32)
    for _ in range(draw(st.integers(1, 8))):
        x = _view(draw, x)
    return trace.finish({"out": x + 1.0})


@st.composite
def computations(draw: st.DrawFn) -> Graph:
    """One or two outputs of up to ten steps over two inputs."""
    trace = Trace()
    shapes = st.lists(st.sampled_from(_SIZES), min_size=1, max_size=3)
    made = [trace.input(name, tuple(draw(shapes)), DType.F32) for name in ("x", "y")]
    for _ in range(draw(st.integers(1, 10))):
        step = draw(st.sampled_from([_view, _view, _pointwise, _reduced, _gathered, _rolled, _combined]))
        x = draw(st.sampled_from(made[-3:]))
        made.append(_combined(draw, x, made) if step is _combined else step(draw, x))
    return trace.finish({"first": made[-1] * 0.5, "second": draw(st.sampled_from(made)) + 1.0})


def values_for(graph: Graph, dims: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """A float64 array for each input."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.uniform(-1, 1, tuple(bind(size, dims) for size in node.shape))
        for name, node in graph.inputs.items()
    }


def _view(draw: st.DrawFn, x: Tensor) -> Tensor:
    kind = draw(st.sampled_from(["permute", "insert", "unsqueeze", "slice", "merge", "split", "reshape"]))
    if kind == "permute":
        return x.permute(*draw(st.permutations(range(x.rank))))
    if kind in ("insert", "unsqueeze"):
        at = draw(st.integers(0, x.rank))
        grown: Size = draw(st.sampled_from(_GROWN))
        size = grown if kind == "insert" and _elements(x) < _MOST_ELEMENTS else 1
        return x.insert_axis(at, size)
    if kind == "merge" and x.rank > 1:
        at = draw(st.integers(0, x.rank - 2))
        return x.reshape(*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :])
    fixed = [d for d, size in enumerate(x.shape) if isinstance(size, int) and size > 1]
    if not fixed:
        return x
    at = draw(st.sampled_from(fixed))
    size = x.shape[at]
    assert isinstance(size, int)
    if kind == "slice":
        start, step = draw(st.integers(0, size - 1)), draw(st.integers(1, 3))
        return x.transpose(0, at)[start::step].transpose(0, at)
    if kind == "split":
        factor = draw(st.sampled_from([f for f in range(1, size + 1) if size % f == 0]))
        return x.reshape(*x.shape[:at], factor, size // factor, *x.shape[at + 1 :])
    return _reshaped(draw, x, fixed)


def _reshaped(draw: st.DrawFn, x: Tensor, fixed: list[int]) -> Tensor:
    """Two static axes brought together and cut elsewhere, so that indices need quotients and remainders."""
    a, b = fixed[0], fixed[-1]
    if a == b:
        return x
    order = [d for d in range(x.rank) if d not in (a, b)] + [a, b]
    x = x.permute(*order)
    first, second = x.shape[-2:]
    assert isinstance(first, int)
    assert isinstance(second, int)
    return x.reshape(*x.shape[:-2], second, first)


def _pointwise(draw: st.DrawFn, x: Tensor) -> Tensor:
    match draw(st.integers(0, 4)):
        case 0:
            return (x * x + 1.0).recip()
        case 1:
            return x.sin()
        case 2:
            return x.sin().exp2()
        case 3:
            return (x * x + 0.5).log2()
        case _:
            return (x * x).sqrt()


def _reduced(draw: st.DrawFn, x: Tensor) -> Tensor:
    if not x.rank:
        return x
    axis, keepdim = draw(st.integers(0, x.rank - 1)), draw(st.booleans())
    return x.max(axis, keepdim) if draw(st.booleans()) else x.sum(axis, keepdim).sin()


def _gathered(draw: st.DrawFn, x: Tensor) -> Tensor:
    """Rows of the first axis in an order that is computed."""
    if not x.rank or _elements(x) >= _MOST_ELEMENTS:
        return x
    length = x.shape[0]
    picked = arange(x.builder, draw(st.sampled_from((2, 5))))
    if isinstance(length, int):
        return x[(picked * draw(st.integers(0, 5)) + draw(st.integers(0, 5))).fmod(length),]
    return x[picked * 0,]


def _rolled(draw: st.DrawFn, x: Tensor) -> Tensor:
    """A value read at two places of one axis, as a rotation reads it."""
    fixed = [d for d, size in enumerate(x.shape) if isinstance(size, int) and size > 1]
    if not fixed:
        return x
    at = draw(st.sampled_from(fixed))
    size = x.shape[at]
    assert isinstance(size, int)
    first = x.transpose(0, at)
    moved = first[(arange(x.builder, size) + draw(st.integers(1, size))).fmod(size),]
    return (first + moved * 0.5).transpose(0, at)


def _combined(draw: st.DrawFn, x: Tensor, made: list[Tensor] | None = None) -> Tensor:
    other = draw(st.sampled_from([y for y in made or [x] if y.shape == x.shape]))
    return x * other if draw(st.booleans()) else x + other


def _elements(x: Tensor) -> int:
    total = 1
    for size in x.shape:
        total *= bind(size, {"N": 5})
    return total
