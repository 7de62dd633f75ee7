"""Weights are stored as they are read: a view that all readers share is taken once, when a program is made.

So a matrix that a model keeps [in, out], or a convolution's kernel, lies [out, in] like any other and may be
packed. A rewrite of the graph, made before anything is searched; it changes no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from compiler.ir.dim import Size
from compiler.ir.graph import Graph, GraphBuilder, Node
from compiler.ir.ops import Op

Array = npt.NDArray[Any]
_FOLDED = (Op.PERMUTE, Op.RESHAPE)


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """The graph over weights that lie as they are read, and the views that make them so, innermost first."""

    graph: Graph
    views: Mapping[str, tuple[Node, ...]]

    def stored(self, name: str, array: Array) -> Array:
        """The weight called `name` as the graph has it, from what the model has under that name."""
        for view in self.views.get(name, ()):
            if view.op is Op.PERMUTE:
                array = array.transpose(cast(tuple[int, ...], view.attr))
            else:
                array = array.reshape(cast(tuple[int, ...], view.shape))
        return np.ascontiguousarray(array) if name in self.views else array


def store_views(graph: Graph) -> StoredWeights:
    """Take the views of matrices into how they are stored, where nobody reads the matrix otherwise."""
    users: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for i in node.inputs:
            users.setdefault(i, []).append(node)
    kept = set(graph.outputs.values())
    views = {name: _shared_views(node, users, kept) for name, node in graph.weights.items()}
    views = {name: chain for name, chain in views.items() if chain}
    if not views:
        return StoredWeights(graph, {})
    replaced = {chain[-1]: name for name, chain in views.items()}
    dropped = {graph.weights[name] for name in views} | {v for chain in views.values() for v in chain[:-1]}
    builder, made = GraphBuilder(), dict[Node, Node]()
    for node in graph.nodes:
        if node in replaced:
            made[node] = builder.weight(replaced[node], node.shape, node.dtype)
        elif node not in dropped:
            inputs = tuple(made[i] for i in node.inputs)
            made[node] = builder.node(
                node.op, inputs, node.attr, shape=node.shape, dtype=node.dtype, source=node.source
            )
    outputs = {name: made[node] for name, node in graph.outputs.items()}
    return StoredWeights(Graph(outputs, graph.aliases), views)


def _shared_views(weight: Node, users: Mapping[Node, list[Node]], kept: set[Node]) -> tuple[Node, ...]:
    """The longest chain of views above `weight` that ends in a matrix and hides nothing from anybody."""
    chain: list[Node] = []
    node = weight
    while node not in kept and len(readers := set(users.get(node, []))) == 1:
        (node,) = readers
        if node.op not in _FOLDED:
            break
        chain.append(node)
    while chain and not _is_matrix(chain[-1].shape):
        chain.pop()
    return tuple(chain) if len(weight.shape) > 1 else ()


def _is_matrix(shape: tuple[Size, ...]) -> bool:
    return len(shape) == 2 and all(isinstance(n, int) for n in shape)
