"""An arrangement: one set of cuts, and the definitions, canonical forms and stages that follow from it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compiler.ir.graph import Graph, Node
from compiler.lower.canonical import Buffer, Canonical, Instance, Role, canonicalize
from compiler.lower.definitions import Definition, cuttable, define
from compiler.lower.index_terms import input_buffer, weight_buffer
from compiler.lower.stages import stages
from compiler.search.cuts import starting_cuts


@dataclass(frozen=True, slots=True)
class Arrangement:
    """What a set of cuts makes of a graph."""

    graph: Graph
    cuts: frozenset[Node]
    plan: tuple[tuple[Definition, ...], ...]
    instances: Mapping[str, Instance]

    def distinct(self) -> dict[str, Canonical]:
        """Each canonical definition once, by key."""
        return {i.canonical.key: i.canonical for i in self.instances.values()}

    def counts(self) -> dict[str, int]:
        """How many definitions share each key."""
        return dict(Counter(i.canonical.key for i in self.instances.values()))

    def flipped(self, nodes: Iterable[Node]) -> frozenset[Node]:
        """These cuts, with each of `nodes` cut if it was not, and not if it was."""
        return self.cuts ^ frozenset(nodes)


def arrange(graph: Graph, cuts: Iterable[Node]) -> Arrangement:
    """Define, canonicalise and stage `graph` under `cuts`.

    Raises:
        LoweringError: the graph has no index form.
    """
    chosen = frozenset(cuts)
    definitions = define(graph, [n for n in graph.nodes if n in chosen])
    buffers = describe_buffers(graph, definitions)
    instances = {d.name: canonicalize(d, buffers) for d in definitions}
    return Arrangement(graph, chosen, stages(definitions), instances)


def describe_buffers(graph: Graph, definitions: Sequence[Definition]) -> dict[str, Buffer]:
    """Every buffer of the program by name: inputs, weights and values."""
    found = {input_buffer(n): Buffer(n.shape, n.dtype, Role.INPUT) for n in graph.inputs.values()}
    found |= {weight_buffer(n): Buffer(n.shape, n.dtype, Role.WEIGHT) for n in graph.weights.values()}
    return found | {d.name: Buffer(d.shape, d.dtype, Role.VALUE) for d in definitions}


def cut_classes(graph: Graph) -> Mapping[str, tuple[Node, ...]]:
    """Cuttable nodes, grouped by what they compute above the starting cuts: equal layers flip together."""
    boundary = frozenset(starting_cuts(graph))
    keys: dict[Node, str] = {}
    for node in graph.nodes:
        below = ["kept" if i in boundary else keys[i] for i in node.inputs]
        attr = "" if isinstance(node.attr, str) else repr(node.attr)
        text = "|".join([node.op, str(node.shape), node.dtype, attr, *below])
        keys[node] = hashlib.sha256(text.encode()).hexdigest()[:12]
    grouped: dict[str, list[Node]] = {}
    for node in cuttable(graph):
        grouped.setdefault(f"{node.op}{list(node.shape)} {keys[node]}", []).append(node)
    return {name: tuple(nodes) for name, nodes in grouped.items()}
