"""Corners of the Triton printer that whole programs seldom reach, each as a small program of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.codegen.triton import KernelRun, run_interpreted, triton_kernels, with_steady_form
from compiler.codegen.triton.lanes import lane_counts
from compiler.codegen.triton.visits import loop_visits
from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import arange
from compiler.ir import DType, symbol
from compiler.lower import terms as t
from compiler.lower.tiles import Compute, Dot, Kernel, Loop, Param, Store, Tile, loops, statements
from compiler.search.arrange import arrange
from compiler.search.cuts import starting_cuts
from tests.support.program_values import values_of
from tests.support.programs import GROUPS, graph_of, sizes_of
from tests.support.triton_runs import Outcomes, chained_cases, run_cases

T, S = symbol("T", 1, 256), symbol("S", 1, 512)
ROWS, COLUMNS, WIDTH = 21, 75, 20


def outcomes_of(build: Callable[[Trace], Tensor], **inputs: np.ndarray) -> Outcomes:
    """A graph with one output over given values; the sizes are those above."""
    trace = Trace()
    graph = trace.finish({"out": build(trace)})
    return run_cases(list(chained_cases("out", graph, inputs, {"T": ROWS, "S": COLUMNS})))


def integers(low: int, high: int) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, ROWS).astype(np.int32)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.pitfall("C7")
def test_division_of_a_negative_index_rounds_down():
    def build(trace: Trace) -> Tensor:
        n = trace.input("n", (T,), DType.I32)
        return (n // 4).cast(DType.F32) + (n % 4).cast(DType.F32) * 100.0 + (n // 6).cast(DType.F32) * 1e4

    assert outcomes_of(build, n=integers(-40, 40)).over(0.0) == []


def test_a_mask_on_one_of_two_reductions_does_not_cut_the_other_short():
    def build(trace: Trace) -> Tensor:
        x, v = trace.input("x", (T, S), DType.F32), trace.input("v", (S, WIDTH), DType.F32)
        seen = arange(trace.builder, S) < trace.input("n", (T,), DType.I32).reshape(T, 1)
        weighted = (x.exp2().unsqueeze(2) * v).sum(1)
        return weighted * (x * seen.cast(DType.F32)).sum(1, keepdim=True)

    values = {"x": normal(ROWS, COLUMNS), "v": normal(COLUMNS, WIDTH), "n": integers(1, 9)}
    assert outcomes_of(build, **values).over(1e-5) == []


@pytest.mark.parametrize("name", ["attention", "causal_attention"])
def test_lanes_past_the_end_stay_out_of_rows_whose_scores_are_all_far_below_zero(name):
    """There exp2(0 - max) overflows, and infinity times the 0 that was read would be NaN."""
    graph, sizes = graph_of(name), sizes_of(name, 5, 19)
    values = values_of(graph, sizes)
    values["q"], values["k"] = np.abs(values["q"]) * 20, -np.abs(values["k"]) * 20
    outcomes = run_cases(list(chained_cases(name, graph, values, sizes)))
    assert all(np.isfinite(o.written).all() for o in outcomes.found)
    assert outcomes.over(1e-4) == []


def test_a_tile_is_read_along_axes_in_another_order():
    rows, columns = 5, 6
    held = Tile("t0", ("o1", "o0"), DType.F32)
    read = t.load("x", (t.idx("o1"), t.idx("o0")), DType.F32)
    place = (t.idx("o0"), t.idx("o1"))
    store = Store("out", place, (), ("o0", "o1"), t.tile(held.name, held.axes, held.dtype), DType.F32)
    kernel = Kernel(
        (Param("x", (columns, rows), DType.F32), Param("out", (rows, columns), DType.F32, is_written=True)),
        {"o0": rows, "o1": columns},
        {"o0": rows, "o1": columns},
        (Compute(held, read), store),
        0,
        "chunk",
    )
    x = normal(columns, rows)
    (written,) = run_interpreted(
        [KernelRun(kernel, {"x": x, "out": np.zeros((rows, columns), np.float32)}, {})]
    )
    assert np.array_equal(written, x.T)


def test_every_side_of_a_matrix_product_has_16_lanes():
    graph = graph_of("grouped_attention")
    definition = next(iter(arrange(graph, starting_cuts(graph)).distinct().values()))
    kernel = triton_kernels(with_steady_form(definition))[0].kernel
    sides = {axis for s in statements(kernel.body) if isinstance(s, Dot) for axis in (s.m, s.n, s.k) if axis}
    assert min(kernel.blocks[a] for a in sides) == GROUPS
    assert min(lane_counts(kernel)[a] for a in sides) == 16


def stream_of(name: str) -> Loop:
    """The sequential loop of a program's first kernel, its rows in tiles."""
    graph = graph_of(name)
    definition = next(iter(arrange(graph, starting_cuts(graph)).distinct().values()))
    kernel = triton_kernels(with_steady_form(definition))[0].kernel
    assert max(kernel.blocks["o0"], 1) > 1
    return list(loops(kernel.body))[-1]


@pytest.mark.parametrize(
    ("name", "uppers", "lowers"),
    [
        ("attention", 0, 0),
        ("padded_attention", 0, 0),
        ("causal_attention", 1, 0),
        ("sliding_window_attention", 1, 1),
        ("window_of_two_masks", 1, 1),
    ],
)
def test_a_tile_of_rows_visits_only_what_some_row_sees(name, uppers, lowers):
    found = loop_visits(stream_of(name))
    assert (len(found.uppers), len(found.lowers)) == (uppers, lowers)
