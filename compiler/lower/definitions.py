"""Definitions: the only place where a name is cut and a value gets a buffer of its own.

Forced cuts are graph outputs, scatters, and every node that one root asks for under two index tuples and
whose reductions differ with them (RoPE reads q at d and at d + D/2). Optional cuts are the search's choice:
`cuttable` lists them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from compiler.ir.dim import Size
from compiler.ir.dtype import DType, is_float
from compiler.ir.graph import Graph, Node
from compiler.ir.ops import LEAVES, REDUCTIONS, VIEWS, Op
from compiler.lower import terms as t
from compiler.lower.errors import LoweringError
from compiler.lower.index_terms import Indices, Lowering, input_buffer
from compiler.lower.indexing import const_index
from compiler.lower.terms import Kind, Term

_Below: TypeAlias = dict[tuple[Node, Indices], frozenset[tuple[Node, Indices]]]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a definition's elements go: `buffer[indices]`; a coordinate outside its limit drops the write."""

    buffer: str
    indices: Indices
    limits: tuple[tuple[Term, Size], ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """`place[axes] = term`. `shape` is that of the buffer; `aliases` names the buffer it is written over."""

    name: str
    axes: tuple[str, ...]
    extents: Mapping[str, Size]
    term: Term
    place: Place
    shape: tuple[Size, ...]
    dtype: DType
    node: Node
    aliases: str | None = None

    def reads(self) -> tuple[str, ...]:
        """Buffers read, in first-use order; the destination of a scatter is not among them."""
        roots = [self.term, *self.place.indices]
        found = [t.buffer_of(x) for x in t.topological(roots) if x.kind is Kind.LOAD]
        return tuple(dict.fromkeys(found))


def define(graph: Graph, optional: Iterable[Node] = ()) -> tuple[Definition, ...]:
    """Definitions of every output of `graph`, producers first, cut at the forced nodes and at `optional`.

    Raises:
        LoweringError: a graph that has no index form, or a scatter over something that is not a buffer.
    """
    order = {node: i for i, node in enumerate(graph.nodes)}
    cuts: dict[Node, str] = {}
    roots = list(output_roots(graph).values())
    pending = [*roots, *optional]
    has_reduction = _nodes_above_reductions(graph)
    cuts.update(dict.fromkeys((n for n in roots if n.op in LEAVES), ""))
    while pending:
        for node in pending:
            if node.op not in LEAVES:
                cuts.setdefault(node, "")
        pending = []
        for root in sorted(cuts, key=lambda n: order[n], reverse=True):
            pending.extend(_asked_twice(root, cuts, order, has_reduction))
    named = {n: f"d{i}" for i, n in enumerate(sorted(cuts, key=lambda n: order[n]))}
    scattered = _scatter_bases(graph, named)
    return tuple(_definition(node, name, named, scattered) for node, name in named.items())


def output_roots(graph: Graph) -> dict[str, Node]:
    """The node that is computed into each output's buffer: its own, below what leaves its elements in order.

    An output that overwrites an input lies as that input does, whatever view of it the graph gives.
    """
    return {
        name: _skip_views(node) if name in graph.aliases else _skip_reshapes(node)
        for name, node in graph.outputs.items()
    }


def _skip_reshapes(node: Node) -> Node:
    while node.op is Op.RESHAPE:
        node = node.inputs[0]
    return node


def _skip_views(node: Node) -> Node:
    while node.op in VIEWS:
        node = node.inputs[0]
    return node


def _nodes_above_reductions(graph: Graph) -> frozenset[Node]:
    above: set[Node] = set()
    for node in graph.nodes:
        if node.op in REDUCTIONS or node.op is Op.SCATTER or any(i in above for i in node.inputs):
            above.add(node)
    return frozenset(above)


def _asked_twice(
    root: Node, cuts: Mapping[Node, str], order: Mapping[Node, int], has_reduction: frozenset[Node]
) -> list[Node]:
    """Nodes that `root` asks for under two index tuples, users before producers, found in one sweep."""
    names = tuple(f"a{d}" for d in range(len(root.shape)))
    lowering = Lowering(cuts, dict(zip(names, root.shape, strict=True)))
    asked: dict[Node, set[Indices]] = {}
    heap: list[tuple[int, Node]] = []
    found: list[Node] = []
    below: _Below = {}

    def ask(node: Node, indices: Indices) -> None:
        if node not in asked:
            asked[node] = set()
            heapq.heappush(heap, (-order[node], node))
        asked[node].add(indices)

    if root.op is Op.SCATTER:  # what it writes over may be written itself, by a scatter before it
        base = _skip_views(root.inputs[0])
        found.extend([base] if base.op is Op.SCATTER and base not in cuts else [])
    for n, ix in _root_asks(root, lowering, _points(names, root.shape)):
        ask(n, ix)
    while heap:
        _, node = heapq.heappop(heap)
        if node in cuts and node.op is not Op.SCATTER:
            continue
        if node.op is Op.SCATTER:
            if node not in cuts:
                found.append(node)
            continue
        if (
            len(asked[node]) > 1
            and node in has_reduction
            and node.op not in VIEWS
            and node.op is not Op.GATHER
            and len({_reductions_below(node, ix, lowering, below) for ix in asked[node]}) > 1
        ):
            found.append(node)
            continue
        for indices in asked[node]:
            for n, ix in lowering.asks(node, indices):
                ask(n, ix)
    return found


def _reductions_below(
    node: Node, indices: Indices, lowering: Lowering, memo: _Below
) -> frozenset[tuple[Node, Indices]]:
    """The nearest reductions that `node` reads at `indices`, and where. A value that is asked for at two
    places but reads the same reductions at both (x - mean at a column and at all columns) is no reason to
    cut: nothing is reduced twice.
    """
    if (node, indices) not in memo:
        if node.op in LEAVES or node in lowering.cuts:
            memo[node, indices] = frozenset()
        elif node.op in REDUCTIONS or node.op is Op.SCATTER:
            memo[node, indices] = frozenset({(node, indices)})
        else:
            asked = lowering.asks(node, indices)
            memo[node, indices] = frozenset().union(
                *(_reductions_below(n, ix, lowering, memo) for n, ix in asked)
            )
    return memo[node, indices]


def _root_asks(root: Node, lowering: Lowering, start: Indices) -> list[tuple[Node, Indices]]:
    if root.op is not Op.SCATTER:
        return list(lowering.asks(root, start))
    *coordinates, source = root.inputs[1:]
    rank = len(coordinates[0].shape)
    names = tuple(f"a{d}" for d in range(len(source.shape)))
    lowering.extents.update(zip(names, source.shape, strict=True))
    axes = _points(names, source.shape)
    return [(source, axes), *((c, axes[:rank]) for c in coordinates)]


def _points(axes: tuple[str, ...], shape: tuple[Size, ...]) -> Indices:
    """An index along each axis. An axis of one point has only 0, however it is reached: a value that is read
    both with such an axis and without it is one value, not two.
    """
    return tuple(const_index(0) if n == 1 else t.idx(a) for a, n in zip(axes, shape, strict=True))


def _scatter_bases(graph: Graph, named: Mapping[Node, str]) -> Mapping[Node, str]:
    """The input buffer that each scatter writes over. In place needs that nobody reads the old value."""
    bases: dict[Node, str] = {}
    users: dict[Node, int] = {}
    for node in graph.nodes:
        for i in node.inputs:
            users[i] = users.get(i, 0) + 1
    for node in named:
        if node.op is not Op.SCATTER:
            continue
        base = node.inputs[0]
        while base.op in VIEWS and users[base] == 1:
            base = base.inputs[0]
        if users[base] != 1 or base.op not in (Op.INPUT, Op.SCATTER):
            raise LoweringError(
                "a scatter writes in place: its destination must be an input, or another scatter, "
                "that nobody else reads"
            )
        bases[node] = bases[base] if base.op is Op.SCATTER else input_buffer(base)
    return bases


def _definition(
    node: Node, name: str, named: Mapping[Node, str], scattered: Mapping[Node, str]
) -> Definition:
    if node.op is Op.SCATTER:
        return _scatter_definition(node, name, named, scattered)
    axes = tuple(f"{name}.{d}" for d in range(len(node.shape)))
    lowering = Lowering(named, dict(zip(axes, node.shape, strict=True)))
    indices = _points(axes, node.shape)
    term = lowering.lower(node, indices, root=True)
    return Definition(name, axes, lowering.extents, term, Place(name, indices), node.shape, node.dtype, node)


def _scatter_definition(
    node: Node, name: str, named: Mapping[Node, str], scattered: Mapping[Node, str]
) -> Definition:
    dest, *coordinates, source = node.inputs
    axes = tuple(f"{name}.{d}" for d in range(len(source.shape)))
    lowering = Lowering(named, dict(zip(axes, source.shape, strict=True)))
    indices = _points(axes, source.shape)
    rank = len(coordinates[0].shape)
    picked = tuple(lowering.lower(c, indices[:rank]) for c in coordinates)
    place = lowering.lower(dest, picked + indices[rank:])
    if place.kind is not Kind.LOAD:
        raise LoweringError("a scatter's destination must be a buffer or a view of one")
    limits = tuple(zip(picked, dest.shape, strict=False))
    term = lowering.lower(source, indices)
    base = dest
    while base.op in VIEWS:
        base = base.inputs[0]
    where = Place(name, place.args, limits)
    return Definition(
        name, axes, lowering.extents, term, where, base.shape, node.dtype, node, scattered[node]
    )


def cuttable(graph: Graph) -> tuple[Node, ...]:
    """Nodes whose cut is a choice: float values that are read in windows; and those with a reduction at or
    above them that are reduced further, or contracted, or read by several users."""
    above = _nodes_above_reductions(graph)
    users: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        for i in node.inputs:
            users.setdefault(i, []).append(node)
    outputs = set(output_roots(graph).values())

    def is_choice(node: Node) -> bool:
        if node in outputs or node.op in VIEWS or node.op in LEAVES or not is_float(node.dtype):
            return False
        if node.op in (Op.SCATTER, Op.GATHER):
            return False
        if is_windowed(node, users):
            return True
        if node not in above:
            return False
        return node.op in REDUCTIONS or len(users[node]) > 1 or _feeds_contraction(node, users)

    return tuple(n for n in graph.nodes if is_choice(n))


def is_windowed(node: Node, users: Mapping[Node, list[Node]]) -> bool:
    """Whether `node`, seen through views, is read at a grid of places that hangs on no input: in windows."""
    for user in users.get(node, []):
        if user.op in VIEWS and is_windowed(user, users):
            return True
        if user.op is Op.GATHER and user.inputs[0] is node:
            indices = user.inputs[1:]
            if len(indices[0].shape) > 1 and all(_is_arithmetic(i) for i in indices):
                return True
    return False


def _is_arithmetic(index: Node) -> bool:
    """Whether an index reads nothing from memory."""
    return index.op not in (Op.INPUT, Op.WEIGHT) and all(_is_arithmetic(i) for i in index.inputs)


def _feeds_contraction(node: Node, users: Mapping[Node, list[Node]]) -> bool:
    """Whether `node`, seen through views and casts, is an operand of a product that is summed."""
    for user in users.get(node, []):
        if user.op in VIEWS or user.op is Op.CAST:
            if _feeds_contraction(user, users):
                return True
        elif user.op is Op.MUL and any(u.op is Op.SUM for u in users.get(user, [])):
            return True
    return False
