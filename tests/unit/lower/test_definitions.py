"""Where graphs are cut, and what scatters write over."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.frontend import Tensor, Trace
from compiler.frontend.functional import arange, rms_norm, softmax
from compiler.ir import DType, Graph, Op, evaluate, symbol
from compiler.lower.definitions import cuttable, define
from compiler.lower.errors import LoweringError
from compiler.lower.stages import stages
from compiler.search.cuts import starting_cuts
from tests.support.chained import run_chained
from tests.support.programs import PROGRAMS, graph_of

N = symbol("N", 1, 8)
UNCUT = sorted(PROGRAMS)


def projected(trace: Trace) -> Tensor:
    x, w = trace.input("x", (N, 8), DType.F32), trace.weight("w", (8, 8), DType.F32)
    return (x.unsqueeze(1) * w).sum(2)


def rotated(y: Tensor) -> Tensor:
    """`y` and its other half along the last axis, as rotary embeddings read it."""
    half = (arange(y.builder, 8) + 4).fmod(8)
    return y + y.permute(1, 0)[half,].permute(1, 0)


@pytest.mark.parametrize("name", UNCUT)
def test_a_program_of_one_idea_is_one_definition(name: str) -> None:
    assert len(define(graph_of(name))) == 1


def test_a_reduction_read_at_two_places_is_cut() -> None:
    trace = Trace()
    graph = trace.finish({"out": rotated(projected(trace))})
    first, last = define(graph)
    assert first.node.op is Op.SUM
    assert last.reads() == (first.name,)


def test_a_value_without_a_reduction_is_never_cut() -> None:
    trace = Trace()
    x = trace.input("x", (N, 8), DType.F32)
    assert len(define(trace.finish({"out": rotated(x.sin() * 2.0)}))) == 1


def test_two_readers_of_one_norm_compute_it_each() -> None:
    trace = Trace()
    x, g = trace.input("x", (N, 8), DType.F32), trace.weight("g", (8,), DType.F32)
    normed = rms_norm(x, g, 1e-5)
    assert len(define(trace.finish({"a": normed + 1.0, "b": normed * 2.0}))) == 2


def test_an_optional_cut_gives_a_definition_that_the_other_reads() -> None:
    graph = graph_of("rms_normed_product")
    (normed,) = [n for n in starting_cuts(graph) if n.op is not Op.SUM][:1]
    first, last = define(graph, [normed])
    assert (first.node, last.reads()[0]) == (normed, first.name)


def test_only_float_values_at_or_above_reductions_may_be_cut() -> None:
    graph = graph_of("causal_attention")
    choices = cuttable(graph)
    assert choices
    assert all(n.dtype is DType.F32 and n.op not in (Op.INPUT, Op.IOTA, Op.LESS_THAN) for n in choices)
    assert graph.outputs["out"] not in choices


def test_an_output_that_is_a_view_shares_the_buffer_of_what_it_reads() -> None:
    trace = Trace()
    y = projected(trace)
    graph = trace.finish({"out": y.reshape(N, 2, 4), "same": y})
    assert len(define(graph)) == 1


def test_an_axis_of_one_point_is_one_value_however_it_is_reached() -> None:
    trace = Trace()
    x = trace.input("x", (N, 1, 8), DType.F32)
    assert len(define(trace.finish({"out": (softmax(x * x, 2) * x).sum(2)}))) == 1


# Scatters


def cached(trace: Trace, rows: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """A cache [6, 3], slots [rows] and rows to write."""
    return (
        trace.input("cache", (6, 3), DType.F32),
        trace.input("slots", (rows,), DType.I32),
        trace.input("x", (rows, 3), DType.F32),
    )


def values(rows: int = 4) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "cache": rng.standard_normal((6, 3)),
        "slots": np.array([4, -1, 0, 9][:rows], np.int32),
        "x": rng.standard_normal((rows, 3)),
        "other": np.array([1, 4, 7, 2][:rows], np.int32),
    }


def assert_as_evaluated(graph: Graph) -> None:
    given = {name: values()[name] for name in graph.inputs}
    found, wanted = run_chained(graph, given), evaluate(graph, given, precise=True)
    for name, expected in wanted.items():
        np.testing.assert_allclose(found[name], expected)


def test_a_scatter_writes_over_its_input_and_drops_what_lies_outside() -> None:
    trace = Trace()
    cache, slots, x = cached(trace)
    graph = trace.finish({"cache": cache.scatter((slots,), x * 2.0)}, {"cache": "cache"})
    (definition,) = define(graph)
    assert definition.aliases == "in:cache"
    assert [limit for _, limit in definition.place.limits] == [6]
    assert_as_evaluated(graph)


def test_a_scatter_through_views_is_placed_in_the_layout_of_its_input() -> None:
    trace = Trace()
    cache, slots, x = cached(trace, 3)
    turned = cache.reshape(3, 2, 3).permute(2, 0, 1)
    written = turned.scatter((slots,), x.reshape(3, 3, 1).insert_axis(3, 2).squeeze(2)).permute(1, 2, 0)
    graph = trace.finish({"cache": written.reshape(6, 3)}, {"cache": "cache"})
    given = {**values(3), "slots": np.array([2, 5, 0], np.int32)}
    given = {name: given[name] for name in graph.inputs}
    wanted = evaluate(graph, given, precise=True)["cache"]
    np.testing.assert_allclose(run_chained(graph, given)["cache"], wanted)


@pytest.mark.pitfall("C25")
def test_what_reads_a_scatter_reads_the_written_cache() -> None:
    trace = Trace()
    cache, slots, x = cached(trace)
    written = cache.scatter((slots,), x)
    graph = trace.finish({"cache": written, "out": written[arange(trace.builder, 2) + 3,].sum(1)})
    assert_as_evaluated(graph)
    assert [len(group) for group in stages(define(graph))] == [1, 1]


@pytest.mark.pitfall("C25")
def test_a_scatter_over_a_scatter_runs_after_it() -> None:
    trace = Trace()
    cache, slots, x = cached(trace)
    other = trace.input("other", (4,), DType.I32)
    twice = cache.scatter((slots,), x).scatter((other,), x * 3.0)
    graph = trace.finish({"cache": twice}, {"cache": "cache"})
    assert_as_evaluated(graph)
    assert [len(group) for group in stages(define(graph))] == [1, 1]


@pytest.mark.pitfall("C25")
def test_a_scatter_whose_old_value_is_read_elsewhere_is_refused() -> None:
    trace = Trace()
    cache, slots, x = cached(trace)
    graph = trace.finish({"cache": cache.scatter((slots,), x), "out": cache.sum(1)})
    with pytest.raises(LoweringError, match="nobody else reads"):
        define(graph)


@pytest.mark.pitfall("C25")
def test_a_scatter_over_a_computed_value_is_refused() -> None:
    trace = Trace()
    cache, slots, x = cached(trace)
    graph = trace.finish({"out": (cache * 2.0).scatter((slots,), x)})
    with pytest.raises(LoweringError):
        define(graph)
