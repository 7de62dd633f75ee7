"""Runs a graph's definitions one after another by the interpreter of index terms, as a program runs kernels.

Shares nothing with the graph's own interpreter but the meaning of views, so that the two check each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.ir import DType, Graph, GraphBuilder, Node, Op, bind, bind_dims, evaluate, to_numpy_storage
from compiler.ir.dtype import bf16_to_f32, round_to_bf16
from compiler.ir.ops import VIEWS
from compiler.lower.canonical import Instance, canonicalize
from compiler.lower.definitions import Definition, define
from compiler.lower.index_terms import input_buffer, weight_buffer
from compiler.lower.interpret import interpret
from compiler.search.arrange import describe_buffers

Array = npt.NDArray[Any]


def instances(graph: Graph, optional: Iterable[Node] = ()) -> list[Instance]:
    """The canonical form of each definition of `graph`."""
    definitions = define(graph, optional)
    buffers = describe_buffers(graph, definitions)
    return [canonicalize(d, buffers) for d in definitions]


def run_chained(
    graph: Graph,
    values: Mapping[str, Array],
    optional: Iterable[Node] = (),
    dims: Mapping[str, int] | None = None,
) -> dict[str, Array]:
    """The outputs by name, as `evaluate` gives them; f32 values are kept in float64 between definitions."""
    dims = {**bind_dims(graph, values), **(dims or {})}
    definitions = define(graph, optional)
    buffers = {input_buffer(n): _wide(values[name], n.dtype) for name, n in graph.inputs.items()}
    buffers |= {weight_buffer(n): _wide(values[name], n.dtype) for name, n in graph.weights.items()}
    for d in definitions:
        _run(d, buffers, dims)
    named = {d.node: d.name for d in definitions}
    return {name: _value_of(node, named, buffers, dims) for name, node in graph.outputs.items()}


def _wide(value: Array, dtype: DType) -> Array:
    return np.array(value, dtype=np.float64) if dtype is DType.F32 else np.array(value)


def _run(d: Definition, buffers: dict[str, Array], dims: Mapping[str, int]) -> None:
    """Write one definition's elements; one that aliases a buffer writes into that very array."""

    def at(term: Any) -> Array:
        return interpret(term, d.axes, d.extents, buffers, dims)

    value, places = at(d.term), [at(i).astype(np.int64) for i in d.place.indices]
    kept = np.ones(value.shape, dtype=bool)
    for coordinate, limit in d.place.limits:
        place = at(coordinate)
        kept &= (place >= 0) & (place < bind(limit, dims))
    if d.aliases is not None:
        buffers[d.name] = buffers[d.aliases]
    else:
        shape = tuple(bind(size, dims) for size in d.shape)
        storage = np.float64 if d.dtype is DType.F32 else to_numpy_storage(d.dtype)
        buffers[d.name] = np.zeros(shape, dtype=storage)
    stored = round_to_bf16(value.astype(np.float32)) if d.dtype is DType.BF16 else value
    buffers[d.name][tuple(p[kept] for p in places)] = stored[kept] if places else stored


def _value_of(
    node: Node, named: Mapping[Node, str], buffers: Mapping[str, Array], dims: Mapping[str, int]
) -> Array:
    """An output read back: through its views, and through those of what a scatter writes over."""
    if node in named and node.op is not Op.SCATTER:
        return _narrow(buffers[named[node]], node.dtype)
    if node.op is Op.SCATTER:
        chain, base = _views(node.inputs[0])
        while base.op is Op.SCATTER:
            more, base = _views(base.inputs[0])
            chain = [*more, *chain]
        return _through(chain, base, _narrow(buffers[named[node]], node.dtype), dims)
    if node.op in VIEWS:
        inner = _value_of(node.inputs[0], named, buffers, dims)
        return _through([node], node.inputs[0], inner, dims)
    name = input_buffer(node) if node.op is Op.INPUT else weight_buffer(node)
    return _narrow(buffers[name], node.dtype)


def _narrow(value: Array, dtype: DType) -> Array:
    return bf16_to_f32(value).astype(np.float64) if dtype is DType.BF16 else value


def _views(node: Node) -> tuple[list[Node], Node]:
    """A chain of views, innermost first, and what it reads."""
    chain: list[Node] = []
    while node.op in VIEWS:
        chain.insert(0, node)
        (node,) = node.inputs
    return chain, node


def _through(chain: list[Node], base: Node, value: Array, dims: Mapping[str, int]) -> Array:
    builder = GraphBuilder()
    dtype = DType.F32 if base.dtype in (DType.BF16, DType.F16) else base.dtype
    node = builder.input("base", base.shape, dtype)
    for view in chain:
        node = builder.node(view.op, (node,), view.attr, shape=view.shape)
    return evaluate(Graph({"out": node}), {"base": value}, dims=dims, precise=True)["out"]
