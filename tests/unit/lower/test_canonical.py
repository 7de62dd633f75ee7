"""Canonical definitions: equal layers are one, in every process, and the work grows with the graph only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from compiler.checkpoint import config_from_hf
from compiler.frontend import Tensor, Trace
from compiler.ir import DType, Graph, Shape, bounds, symbol
from compiler.lower.canonical import Instance
from compiler.lower.definitions import define
from compiler.search.cuts import starting_cuts
from compiler.zoo.llama import build_llama
from tests.support.chained import instances
from tests.support.tiny_checkpoints import TINY, tiny_config


@cache
def llama(layers: int) -> Graph:
    config = config_from_hf(tiny_config(replace(TINY["gqa"], layers=layers)))
    return build_llama(config, dtype="bf16", max_context=64)


@cache
def keys_of_llama(layers: int) -> list[str]:
    graph = llama(layers)
    return [i.canonical.key for i in instances(graph, starting_cuts(graph))]


def one(graph: Graph) -> Instance:
    (instance,) = instances(graph)
    return instance


def scaled_sum(x: Tensor, by: float = 2.0) -> Tensor:
    return (x * by).sum(1)


def graph_over(shape: Shape, dtype: DType = DType.F32, by: float = 2.0, leaf: str = "input") -> Graph:
    trace = Trace()
    x = getattr(trace, leaf)("x", shape, dtype)
    return trace.finish({"out": scaled_sum(x.cast(DType.F32), by)})


@pytest.mark.pitfall("C29")
def test_layers_share_their_keys() -> None:
    assert len(set(keys_of_llama(4))) == len(set(keys_of_llama(32)))


@pytest.mark.pitfall("C29")
def test_two_layers_add_only_what_differs_between_first_and_later() -> None:
    assert len(set(keys_of_llama(32))) - len(set(keys_of_llama(2))) <= 1


@pytest.mark.pitfall("C29")
def test_each_layer_adds_equally_many_definitions() -> None:
    counts = [len(keys_of_llama(n)) for n in (2, 3, 4)]
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0


def test_lowering_takes_time_linear_in_the_layers() -> None:
    small, large = llama(2), llama(8)

    def seconds(graph: Graph) -> float:
        start = time.process_time()
        instances(graph, starting_cuts(graph))
        return time.process_time() - start

    fastest = min(seconds(small) for _ in range(3))
    assert min(seconds(large) for _ in range(2)) < 4 * 2 * fastest


def test_keys_are_the_same_in_another_process() -> None:
    script = (
        "from tests.support.chained import instances\n"
        "from tests.support.programs import PROGRAMS\n"
        "print([i.canonical.key for build in PROGRAMS.values() for i in instances(build())])\n"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1]
    assert len(json.loads(found[0].replace("'", '"'))) > 20


@pytest.mark.pitfall("C23")
def test_names_of_buffers_and_axes_do_not_count() -> None:
    def graph(name: str, extra: bool) -> Graph:
        trace = Trace()
        outputs = {"first": trace.input("other", (4,), DType.F32) + 1.0} if extra else {}
        return trace.finish({**outputs, "out": scaled_sum(trace.input(name, (3, 8), DType.F32))})

    assert instances(graph("x", False))[0].canonical.key in {
        i.canonical.key for i in instances(graph("y", True))
    }


@pytest.mark.parametrize(
    "other",
    [
        graph_over((3, 9)),
        graph_over((3, symbol("N", 1, 8))),
        graph_over((3, 8), DType.BF16),
        graph_over((3, 8), by=3.0),
        graph_over((3, 8), leaf="weight"),
    ],
    ids=["extent", "symbol", "dtype", "constant", "role"],
)
def test_what_changes_the_kernel_changes_the_key(other: Graph) -> None:
    assert one(graph_over((3, 8))).canonical.key != one(other).canonical.key


@pytest.mark.pitfall("C3")
def test_zero_and_minus_zero_are_told_apart() -> None:
    assert one(graph_over((3, 8), by=0.0)).canonical.key != one(graph_over((3, 8), by=-0.0)).canonical.key


def test_an_instance_says_which_program_buffer_each_canonical_name_is() -> None:
    instance = one(graph_over((3, 8)))
    assert dict(instance.arguments) == {"b0": "in:x", "out": "d0"}


def test_equal_names_with_other_bounds_do_not_meet() -> None:
    def total(high: int) -> Graph:
        trace = Trace()
        n = symbol("N", 1, high)
        return trace.finish({"out": trace.input("x", (n * 3,), DType.F32).reshape(n, 3).sum(1)})

    kept = [define(total(8)), define(total(100))]
    assert [bounds(d.extents["d0.0"])[1] for (d,) in kept] == [8, 100]
