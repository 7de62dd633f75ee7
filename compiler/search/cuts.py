"""Where the search starts: which optional cuts are made before anything is measured.

A starting point, not a rule: each class of nodes is a gene that the search flips.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.dtype import DType, itemsize
from compiler.ir.graph import Graph, Node
from compiler.ir.ops import ELEMENTWISE, VIEWS, Op
from compiler.lower.definitions import cuttable, is_windowed


def starting_cuts(graph: Graph) -> tuple[Node, ...]:
    """Products with weights, what they multiply, what is read in windows, and values with several readers
    that lie right above a cut.

    A product with a weight is dear to recompute and cheap to keep; anything else stays inside its reader.
    """
    choices = cuttable(graph)
    users = _users(graph)
    products = {n for n in graph.nodes if n.op is Op.SUM and _multiplies_weight(n)}
    kept = {_multiplied(p) for p in products}
    cuts = products | {n for n in choices if n in kept or is_windowed(n, users)}
    for node in choices:
        if len(users[node]) > 1 and node.op in ELEMENTWISE and _lies_above(node, cuts):
            cuts.add(node)
    ends = _epilogues(graph, users, cuts)
    return tuple(n for n in graph.nodes if n in cuts and n in choices and not (n in products and n in ends))


def _epilogues(graph: Graph, users: Mapping[Node, list[Node]], cuts: set[Node]) -> set[Node]:
    """Nodes that reach the rest of the graph only through pointwise work that ends in one and the
    same cut.
    """
    outputs = set(graph.outputs.values())
    end: dict[Node, Node | None] = {}
    for node in reversed(graph.nodes):
        ends = {u if u in cuts else end.get(u) for u in users[node] if u.op in ELEMENTWISE}
        is_pointwise = bool(users[node]) and all(u.op in ELEMENTWISE for u in users[node])
        alone = is_pointwise and node not in outputs and len(ends) == 1
        end[node] = ends.pop() if alone else None
    return {n for n, e in end.items() if e is not None}


def _users(graph: Graph) -> Mapping[Node, list[Node]]:
    users: dict[Node, list[Node]] = {n: [] for n in graph.nodes}
    for node in graph.nodes:
        for i in node.inputs:
            users[i].append(node)
    return users


def _through(node: Node) -> Node:
    """What a chain of views and casts reads."""
    while node.op in VIEWS or node.op is Op.CAST:
        node = node.inputs[0]
    return node


def _multiplies_weight(node: Node) -> bool:
    product = _through(node.inputs[0])
    if product.op is not Op.MUL:
        return False
    sides = [_through(i) for i in product.inputs]
    return sum(s.op is Op.WEIGHT and len(s.shape) > 1 for s in sides) == 1


def _multiplied(product: Node) -> Node:
    """What a product with a weight multiplies it by: the value to keep, in its narrowest form.

    Views are looked through; of a value and its roundings the last rounding is kept.
    """
    factors = _through(product.inputs[0]).inputs
    other = next(f for f in factors if _through(f).op is not Op.WEIGHT)
    kept: Node | None = None
    while other.op in VIEWS or other.op is Op.CAST:
        if other.op is Op.CAST and itemsize(other.dtype) < itemsize(DType.F32):
            kept = kept or other
        other = other.inputs[0]
    return kept or other


def _lies_above(node: Node, cuts: set[Node]) -> bool:
    """Whether only pointwise work lies between `node` and the cuts below it, and there is at least one."""
    found = False
    stack = list(node.inputs)
    while stack:
        x = _through(stack.pop())
        if x in cuts:
            found = True
        elif x.op in ELEMENTWISE:
            stack.extend(x.inputs)
        elif x.op in (Op.SUM, Op.MAX):
            return False
    return found
