"""Any graph, compiled by itself, gives what the reference interpreter gives, at every size."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.graphs import BadGraph, compile_graph
from compiler.ir import DType, Graph, bf16_to_f32, evaluate
from compiler.options import CompileOptions
from compiler.runtime import ProgramClosed, StepRefused
from compiler.runtime.graph_program import GraphProgram
from tests.support.small_graphs import SIZES, SMALL_GRAPHS, random_arrays, small_graph

TOLERANCE = {DType.F32: 1e-4, DType.BF16: 8e-3, DType.F16: 2e-3, DType.I32: 0, DType.BOOL: 0}


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> CompileOptions:
    return CompileOptions(dtype="f32", budget="none", threads=2, cache_dir=tmp_path_factory.mktemp("cache"))


def weights_of(graph: Graph) -> dict[str, np.ndarray]:
    return random_arrays({name: (n.shape, n.dtype) for name, n in graph.weights.items()}, {}, seed=1)


def inputs_of(graph: Graph, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    return random_arrays({name: (n.shape, n.dtype) for name, n in graph.inputs.items()}, sizes)


def agrees(graph: Graph, found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> list[str]:
    """Outputs of another type, shape or value than they must have."""
    return [name for name in wanted if not _is_near(found[name], wanted[name], graph.outputs[name].dtype)]


def _is_near(one: np.ndarray, other: np.ndarray, dtype: DType) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    a, b = (bf16_to_f32(x) if dtype is DType.BF16 else x.astype(np.float64) for x in (one, other))
    return np.allclose(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_a_compiled_graph_gives_what_the_interpreter_gives(name: str, options: CompileOptions) -> None:
    graph = small_graph(name)
    weights = weights_of(graph)
    with compile_graph(graph, weights, options) as program:
        for sizes in SIZES:
            inputs = inputs_of(graph, sizes)
            assert agrees(graph, program(inputs), evaluate(graph, {**weights, **inputs})) == []


@pytest.fixture(scope="module")
def rows(options: CompileOptions) -> GraphProgram:
    graph = small_graph("mlp_of_any_rows")
    return compile_graph(graph, weights_of(graph), options)


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({}, "x"),
        ({"x": np.zeros((2, 64), np.float32), "z": np.zeros(1, np.float32)}, "z"),
        ({"x": np.zeros((2, 64), np.float64)}, "x"),
        ({"x": np.zeros((2, 63), np.float32)}, "x"),
        ({"x": np.zeros(64, np.float32)}, "x"),
        ({"x": np.zeros((65, 64), np.float32)}, "T"),
        ({"x": np.zeros((0, 64), np.float32)}, "T"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    rows: GraphProgram, inputs: dict[str, np.ndarray], named: str
) -> None:
    with pytest.raises(StepRefused) as caught:
        rows(inputs)
    assert caught.value.field == named


def test_each_kernel_is_timed(rows: GraphProgram) -> None:
    timed = rows.run_timed({"x": np.zeros((2, 64), np.float32)})
    assert [name for name, _ in timed] == list(rows.kernels)
    assert all(seconds >= 0 for _, seconds in timed)


def test_a_closed_program_refuses_to_run(options: CompileOptions) -> None:
    graph = small_graph("a_scalar")
    program = compile_graph(graph, {}, options)
    program.close()
    program.close()
    with pytest.raises(ProgramClosed):
        program({"x": np.zeros((), np.float32)})


@pytest.mark.parametrize("change", ["missing", "dtype", "shape"])
def test_weights_that_are_not_the_graphs_are_refused(change: str, options: CompileOptions) -> None:
    graph = small_graph("mlp")
    weights = weights_of(graph)
    other = {"dtype": weights["up"].astype(np.float64), "shape": weights["up"][:-1]}
    wrong = {k: v for k, v in weights.items() if k != "up"} | (
        {"up": other[change]} if change in other else {}
    )
    with pytest.raises(BadGraph, match="weight up"):
        compile_graph(graph, wrong, options)


def test_one_name_for_an_input_and_an_output_is_refused(options: CompileOptions) -> None:
    graph = small_graph("a_scalar")
    named = Graph({"x": graph.outputs["y"]}, {})
    with pytest.raises(BadGraph, match="x names"):
        compile_graph(named, {}, options)
