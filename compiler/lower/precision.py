"""Precision policy: where a level multiplies in bf16, what meets a bf16 weight is rounded to bf16 first.

A rewrite of the graph, made before anything is searched, because it changes values: the rounding is a cast
like any
other, the gate judges what follows, and the numeric recipe keeps it for the whole artifact and level.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.dtype import DType
from compiler.ir.graph import Graph, GraphBuilder, Node
from compiler.ir.ops import VIEWS, Op


def narrow_operands(graph: Graph) -> Graph:
    """The graph in which every factor that is summed against a bf16 weight passes through bf16."""
    builder = GraphBuilder()
    made: dict[Node, Node] = {}
    products = {n.inputs[0] for n in graph.nodes if n.op is Op.SUM}
    for node in graph.nodes:
        inputs = tuple(made[i] for i in node.inputs)
        if node in products and node.op is Op.MUL:
            inputs = _narrowed(builder, inputs)
        made[node] = _copy(builder, node, inputs)
    outputs: Mapping[str, Node] = {name: made[n] for name, n in graph.outputs.items()}
    return Graph(outputs, graph.aliases)


def _copy(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node:
    return builder.node(node.op, inputs, node.attr, shape=node.shape, dtype=node.dtype, source=node.source)


def _narrowed(builder: GraphBuilder, sides: tuple[Node, ...]) -> tuple[Node, ...]:
    is_weight = [_is_bf16_weight(s) for s in sides]
    if is_weight.count(True) != 1:
        return sides
    return tuple(s if w else _through_bf16(builder, s) for s, w in zip(sides, is_weight, strict=True))


def _is_bf16_weight(node: Node) -> bool:
    while node.op in VIEWS or node.op is Op.CAST:
        node = node.inputs[0]
    return node.op is Op.WEIGHT and node.dtype is DType.BF16 and len(node.shape) == 2


def _through_bf16(builder: GraphBuilder, node: Node) -> Node:
    """Round below the views, so that the rounded value is one tensor that can be kept."""
    if node.op in VIEWS:
        return _copy(builder, node, (_through_bf16(builder, node.inputs[0]),))
    if node.op is Op.CAST and node.inputs[0].dtype is DType.BF16:
        return node
    narrow = builder.node(Op.CAST, (node,), dtype=DType.BF16, source=node.source)
    return builder.node(Op.CAST, (narrow,), dtype=DType.F32, source=node.source)
