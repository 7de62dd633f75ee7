"""Arrangements: what is kept in memory at the start, and which choices flip together."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from compiler.buckets import step_buckets
from compiler.checkpoint import config_from_hf
from compiler.frontend import Trace
from compiler.frontend.functional import linear, relu, silu
from compiler.ir import DType, Graph, Op, evaluate, symbol
from compiler.nn import Conv2d, max_pool
from compiler.search.arrange import arrange, cut_classes
from compiler.search.cuts import starting_cuts
from compiler.zoo.llama import build_llama
from compiler.zoo.step import StepLimits
from tests.support.chained import run_chained
from tests.support.program_values import values_of
from tests.support.tiny_checkpoints import TINY, tiny_config

N = symbol("N", 1, 8)


@cache
def llama(layers: int = 2, batched: int = 512) -> Graph:
    config = config_from_hf(tiny_config(replace(TINY["gqa"], layers=layers)))
    return build_llama(config, dtype="f32", max_context=64, limits=StepLimits(batched, 4))


def mlp() -> Graph:
    """Two products of one value, combined, and a third of the result."""
    trace = Trace()
    x = trace.input("x", (N, 16), DType.F32)
    gate, up = (trace.weight(n, (32, 16), DType.F32) for n in ("gate", "up"))
    hidden = silu(linear(x, gate)) * linear(x, up)
    return trace.finish({"out": linear(hidden, trace.weight("down", (16, 32), DType.F32))})


def test_what_a_product_multiplies_is_kept_and_what_follows_a_product_joins_it() -> None:
    graph = mlp()
    cuts = starting_cuts(graph)
    assert [n.op for n in cuts] == [Op.MUL]
    assert len(arrange(graph, cuts).instances) == 2


def test_starting_cuts_grow_with_the_layers_only() -> None:
    counts = [len(starting_cuts(llama(n))) for n in (2, 3, 4)]
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0


def test_equal_choices_of_all_layers_are_one_class() -> None:
    two, four = cut_classes(llama(2)), cut_classes(llama(4))
    assert len(two) == len(four)
    assert max(len(nodes) for nodes in four.values()) >= 4


def test_flipping_a_class_twice_gives_the_arrangement_back() -> None:
    graph = llama()
    base = arrange(graph, starting_cuts(graph))
    (nodes, *_) = cut_classes(graph).values()
    once = arrange(graph, base.flipped(nodes))
    assert once.cuts != base.cuts
    assert once.flipped(nodes) == base.cuts


@pytest.mark.parametrize("number", range(6))
def test_an_arrangement_computes_the_same_whatever_is_cut(number: int) -> None:
    graph = mlp()
    classes = list(cut_classes(graph).values())
    cuts = arrange(graph, starting_cuts(graph)).flipped(classes[number % len(classes)])
    values = values_of(graph, {"N": 5})
    wanted = evaluate(graph, values, precise=True)["out"]
    found = run_chained(graph, values, [n for n in graph.nodes if n in cuts])["out"]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_each_stage_reads_only_earlier_ones() -> None:
    plan = arrange(llama(), starting_cuts(llama())).plan
    at = {d.name: number for number, group in enumerate(plan) for d in group}
    assert all(at[b] < at[d.name] for group in plan for d in group for b in d.reads() if b in at)


# Buckets


@pytest.mark.pitfall("C27")
@pytest.mark.parametrize("batched", [1, 2, 16, 17, 512])
def test_buckets_cover_every_step_size_once(batched: int) -> None:
    covered = [t for b in step_buckets(llama(2, batched)) for t in range(b.low, b.high + 1)]
    assert covered == list(range(1, batched + 1))


@pytest.mark.parametrize("batched", [1, 2, 16, 17, 512])
def test_a_bucket_is_measured_inside_itself_and_inside_every_bound(batched: int) -> None:
    graph = llama(2, batched)
    for b in step_buckets(graph):
        assert b.low <= b.representative["T"] <= b.high
        assert all(s.low <= b.representative[s.name] <= s.high for s in graph.symbols)


def test_what_overlapping_windows_read_is_computed_once() -> None:
    trace = Trace()
    image = trace.input("x", (1, 3, 8, 8), DType.F32)
    bent = relu(Conv2d(trace.weight("w", (4, 3, 3, 3), DType.F32))(image))
    graph = trace.finish({"y": max_pool(bent, 3, 1)})
    assert bent.node in starting_cuts(graph)


def test_rows_that_an_input_names_are_not_windows() -> None:
    trace = Trace()
    rows = trace.input("rows", (2, 3), DType.I32)
    bent = relu(trace.input("x", (8, 4), DType.F32).max(1))
    graph = trace.finish({"y": bent[rows,]})
    assert bent.node not in starting_cuts(graph)
