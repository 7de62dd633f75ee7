"""Any graph, compiled in memory: the same search, kernels and runtime as a checkpoint's, without a model."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from compiler.assemble import assemble
from compiler.buckets import whole_bucket
from compiler.codegen.layout import pack
from compiler.errors import CompilerError
from compiler.ir.dtype import to_numpy_storage
from compiler.ir.graph import Graph, Node, verify
from compiler.lower.weight_views import store_views
from compiler.options import CompileOptions, Workshop, effort_of, levels_of, setting_of, toolchain_of
from compiler.runtime.graph_program import GraphParts, GraphProgram, Signature
from compiler.search.program import kernels_source, search

Array = npt.NDArray[Any]


class BadGraph(CompilerError):
    """A graph that is not compiled by itself, or weights that are not its own."""

    code = "invalid_graph"


def compile_graph(
    graph: Graph,
    weights: Mapping[str, Array],
    options: CompileOptions | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
) -> GraphProgram:
    """Compile a graph that `frontend.Trace` made, and load it.

    `weights` are in storage form (bf16 as uint16 bits) under the graph's names. Of `options` budget, seed,
    threads, level, compiler and cache count; dtype "bf16" allows products with bf16 weights to round what
    they multiply, on a CPU with matrix tiles. `sizes` are typical ones of symbols, at which candidates are
    judged; a program runs at every size within the symbols' bounds.

    Raises:
        BadGraph: an output that overwrites an input or has an input's name, or a weight that is missing or of
            another type or shape.
        BadOption: options that mean nothing.
        CompilerError: the toolchain failed, or no candidate passed the gate.
    """
    options = options or CompileOptions()
    verify(graph)
    _check(graph, weights)
    level, toolchain = levels_of(options)[-1], toolchain_of(options)
    lying = store_views(graph)
    bucket = whole_bucket(graph, sizes or {})
    with tempfile.TemporaryDirectory(prefix="candela-search-") as folder:
        workshop = Workshop(Path(folder), toolchain, level)
        setting = setting_of(lying.graph, (bucket,), options, effort_of(options.budget), workshop)
        searched = search(lying.graph, setting, lambda fraction, message: None)
        assembled = assemble(searched, setting.buckets, level.name, toolchain.compiler.version)
        kernels = workshop.build(kernels_source(assembled.candidates, setting.dims))
    parts = GraphParts(
        graph.symbols,
        assembled.program,
        {
            use.name: pack(lying.stored(use.weight, weights[use.weight]), use.layout)
            for use in assembled.weights
        },
        {name: _signature(node) for name, node in graph.inputs.items()},
        {name: _signature(node) for name, node in graph.outputs.items()},
        assembled.outputs,
    )
    return GraphProgram(parts, kernels, setting.threads)


def _signature(node: Node) -> Signature:
    return Signature(node.shape, node.dtype)


def _check(graph: Graph, weights: Mapping[str, Array]) -> None:
    for name in graph.inputs.keys() & graph.outputs.keys():
        raise BadGraph(f"{name} names an input and an output; give one of them another name")
    if graph.aliases:
        raise BadGraph(f"output {next(iter(graph.aliases))} overwrites an input; give it a place of its own")
    for name, node in graph.weights.items():
        if name not in weights:
            raise BadGraph(f"weight {name} is missing")
        found, dtype = weights[name], to_numpy_storage(node.dtype)
        if found.dtype != dtype or found.shape != node.shape:
            raise BadGraph(
                f"weight {name} must be {dtype} of shape {node.shape}, not {found.dtype} of {found.shape}"
            )
