"""The lowering against the graph's own interpreter: definitions, run one after another, give its outputs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.frontend import Trace
from compiler.frontend.functional import additive_mask, arange, linear
from compiler.ir import DType, Graph, Node, evaluate, symbol
from compiler.lower.definitions import cuttable, define
from compiler.lower.errors import LoweringError
from compiler.lower.index_terms import reshape_indices
from compiler.lower.terms import Kind, Term, idx, show, topological
from tests.support.chained import run_chained
from tests.support.program_values import values_of
from tests.support.programs import PROGRAMS, graph_of, sizes_of
from tests.support.random_tensors import DIMS, N, computations, values_for, view_chains

SOME = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MANY = settings(SOME, max_examples=60)


def assert_equal_outputs(
    graph: Graph,
    values: dict[str, np.ndarray],
    optional: tuple[Node, ...] = (),
    dims: dict[str, int] | None = None,
) -> None:
    wanted = evaluate(graph, values, dims=dims, precise=True)
    found = run_chained(graph, values, optional, dims)
    assert found.keys() == wanted.keys()
    for name, expected in wanted.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-9)


def only_term(graph: Graph) -> Term:
    (definition,) = define(graph)
    return definition.term


@MANY
@given(view_chains(), st.sampled_from(DIMS))
def test_a_chain_of_views_is_a_substitution_of_indices(graph: Graph, dims: dict[str, int]) -> None:
    assert_equal_outputs(graph, values_for(graph, dims), dims=dims)


@MANY
@given(computations(), st.sampled_from(DIMS))
def test_definitions_compute_what_the_graph_computes(graph: Graph, dims: dict[str, int]) -> None:
    assert_equal_outputs(graph, values_for(graph, dims), dims=dims)


@SOME
@given(computations(), st.sampled_from(DIMS), st.randoms(use_true_random=False))
def test_optional_cuts_change_no_value(graph: Graph, dims: dict[str, int], rng: Random) -> None:
    choices = cuttable(graph)
    chosen = tuple(rng.sample(choices, rng.randint(0, len(choices))))
    assert_equal_outputs(graph, values_for(graph, dims), chosen, dims)


@pytest.mark.pitfall("C23")
@pytest.mark.parametrize("symbol_name", ["N", "a0", "d0", "k"])
def test_c23_names_are_labels_whatever_they_spell(symbol_name: str) -> None:
    trace, size = Trace(), symbol(symbol_name, 1, 8)
    x, y = (trace.input(n, (size, 3), DType.F32) for n in ("d0", "in:d0"))
    w, v = (trace.weight(n, (3, 3), DType.F32) for n in ("w:d0", "d1"))
    graph = trace.finish({"d0": linear(x, w), "d1": linear(y, v), "w:d0": (x + y).sum(1), "out": x * 2.0})
    rng = np.random.default_rng(0)
    values = {n: rng.standard_normal((5, 3), np.float32) for n in graph.inputs}
    values |= {n: rng.standard_normal((3, 3), np.float32) for n in graph.weights}
    assert_equal_outputs(graph, values)


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_each_program_of_the_library_is_lowered_rightly(name: str) -> None:
    graph = graph_of(name)
    values = values_of(graph, sizes_of(name, 3, 21))
    wanted = evaluate(graph, values, precise=True)["out"]
    np.testing.assert_allclose(
        run_chained(graph, values)["out"], wanted, rtol=1e-2 if "bf16" in name else 1e-7
    )


def test_splitting_and_merging_axes_leaves_no_division() -> None:
    trace = Trace()
    x = trace.input("x", (N, 4 * 3 * 2), DType.F32)
    split = x.reshape(N, 4, 3, 2).permute(0, 2, 1, 3).reshape(N, 3, 8)
    term = only_term(trace.finish({"out": split.reshape(N, 3, 4, 2).permute(0, 2, 1, 3) + 1.0}))
    assert not {t.kind for t in topological([term])} & {Kind.FLOOR_DIV, Kind.FLOOR_MOD}


def test_a_fused_projection_is_read_at_offsets_and_strides() -> None:
    trace = Trace()
    heads, width = 3, 4
    qkv = trace.input("qkv", (N, heads * width * 3), DType.F32)
    keys = qkv[:, heads * width : 2 * heads * width].reshape(N, heads, width)
    term = only_term(trace.finish({"out": keys + 1.0}))
    assert show(term) == "(in:qkv[d0.0, ((d0.1 * 4) + d0.2) + 12)] + 1)".replace("((d0.1", "(((d0.1")


def test_a_gather_is_a_read_whose_index_is_a_read() -> None:
    trace = Trace()
    table, ids = trace.input("table", (7, 3), DType.F32), trace.input("ids", (N,), DType.I32)
    term = only_term(trace.finish({"out": table[ids,] + 1.0}))
    assert show(term) == "(in:table[in:ids[d0.0], d0.1] + 1)"


def test_a_mask_is_a_selection() -> None:
    trace = Trace()
    mask = trace.input("mask", (N,), DType.BOOL)
    assert (
        show(only_term(trace.finish({"out": additive_mask(mask) + 1.0})))
        == "(select(in:mask[d0.0], 0, -inf) + 1)"
    )


def test_reductions_of_one_axis_share_their_bodies() -> None:
    trace = Trace()
    x = trace.input("x", (N, 8), DType.F32)
    e = (x - x.max(1, keepdim=True)).exp2()
    term = only_term(trace.finish({"out": (e * x).sum(1) * e.sum(1).recip()}))
    assert len([t for t in topological([term]) if t.kind is Kind.EXP2]) == 1
    assert len([t for t in topological([term]) if t.kind is Kind.IDX and t.attr == "r8.0"]) == 1


@pytest.mark.pitfall("C7")
@pytest.mark.parametrize("divisor", [-3, -1, 1, 3, 7])
def test_remainders_and_quotients_by_any_constant_keep_their_signs(divisor: int) -> None:
    trace = Trace()
    i = arange(trace.builder, 9)
    outputs = {"fmod": i.fmod(divisor), "mod": i % divisor, "div": i // divisor, "low": (i - 5).fmod(divisor)}
    graph = trace.finish({name: x.cast(DType.F32) for name, x in outputs.items()})
    assert_equal_outputs(graph, {})


def test_remainders_by_values_from_memory_are_computed() -> None:
    trace = Trace()
    i, by = trace.input("i", (6,), DType.I32), trace.input("by", (6,), DType.I32)
    graph = trace.finish({"q": (i // by).cast(DType.F32), "r": i.fmod(by).cast(DType.F32)})
    assert_equal_outputs(
        graph,
        {"i": np.array([7, -7, 0, 5, 1, 9], np.int32), "by": np.array([2, 2, 3, -3, 1, 4], np.int32)},
    )


def test_a_reshape_that_fits_no_shape_is_refused() -> None:
    at = (idx("a"), idx("b"))
    with pytest.raises(LoweringError, match="reshape"):
        reshape_indices(at, (N * 3, 3), (N, 6), {"a": N * 3, "b": 3})
