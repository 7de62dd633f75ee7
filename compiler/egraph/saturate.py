"""Saturate one definition: encode its term, run the rules to a limit, and read the e-graph back.

The only module that talks to egglog.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from egglog.bindings import EGraph

from compiler.egraph.language import OPERATORS, RELATIONS, program_head
from compiler.egraph.rule import Rule
from compiler.egraph.rules import RULES
from compiler.ir.dim import Size, bounds
from compiler.ir.dtype import DType
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of, cast_to, num, topological

_NAMES = {
    Kind.EXP2: "Exp2",
    Kind.LOG2: "Log2",
    Kind.SIN: "Sin",
    Kind.SQRT: "Sqrt",
    Kind.RECIP: "Recip",
    Kind.ADD: "Add",
    Kind.MUL: "Mul",
    Kind.DIV: "Div",
    Kind.MOD: "Mod",
    Kind.SELECT: "Select",
    Kind.SUM: "Sum",
    Kind.MAX: "Max",
}
KINDS: Mapping[str, Kind] = {name: kind for kind, name in _NAMES.items()} | {"Online": Kind.ONLINE}


_COUNTED = 2**24
"""Integers up to here are f32 numbers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where saturation stops; whatever was found by then is used, and the input is always a member."""

    e_nodes: int = 20_000
    seconds: float = 10.0
    rounds: int = 64


@dataclass(frozen=True, slots=True)
class ENode:
    op: str
    eclass: str
    children: tuple[str, ...]  # e-classes for terms, the literal for strings


@dataclass(frozen=True, slots=True)
class Saturated:
    """An e-graph read back. `leaves` maps a leaf's name to its term; `root` is the class of the input.
    `facts` are what rules concluded about classes, each a relation and its arguments.
    """

    nodes: tuple[ENode, ...]
    facts: tuple[tuple[str, tuple[str, ...]], ...]
    leaves: Mapping[str, Term]
    root: str
    e_nodes: int
    seconds: float


def saturate(
    root: Term,
    rules: tuple[Rule, ...] = RULES,
    limits: Limits = Limits(),
    extents: Mapping[str, Size] = MappingProxyType({}),
) -> Saturated:
    """Run `rules` over `root` until nothing new is found or a limit is reached. Rules that need a first
    value, or the length of an axis, see only the axes of `extents`.
    """
    start = time.perf_counter()
    graph = EGraph()
    text, leaves = _encode(root, extents)
    _run(graph, program_head(rules) + text)
    seen = (-1, -1)
    for _ in range(limits.rounds):
        _run(graph, "(run-schedule (saturate (run facts)) (run algebra) (saturate (run facts)))")
        size = sum(_size(graph, op) for op in OPERATORS)
        known = sum(_size(graph, relation) for relation in RELATIONS)
        if (size, known) == seen or size > limits.e_nodes or time.perf_counter() - start > limits.seconds:
            break
        seen = (size, known)
    nodes, facts, root_class = _read_back(graph)
    return Saturated(nodes, facts, leaves, root_class, size, time.perf_counter() - start)


def _run(graph: EGraph, text: str) -> list[Any]:
    return cast(list[Any], graph.run_program(*graph.parse_program(text)))


def _size(graph: EGraph, name: str) -> int:
    out = _run(graph, f"(print-size {name})")
    return int(out[0].size) if out else 0


def _encode(root: Term, extents: Mapping[str, Size]) -> tuple[str, Mapping[str, Term]]:
    """egglog lets for the f32 algebra above the leaves; a leaf's independence is asserted."""
    reachable, leaves_found = _algebra(root)
    axes = sorted({axis_of(t) for t in reachable if t.kind in REDUCTIONS})
    lines = [f'(axis "{a}")' for a in axes]
    names: dict[Term, str] = {}
    leaves: dict[str, Term] = {}
    for term in topological([root]):
        if term not in reachable:
            continue
        name = names[term] = f"$t{len(names)}"
        if term in leaves_found:
            leaves[name] = term
            lines.append(f'(let {name} (Leaf "{name}"))')
            lines.extend(f'(indep {name} "{a}")' for a in axes if a not in term.free)
            inside = {axis_of(x) for x in topological([term]) if x.kind in REDUCTIONS}
            lines.extend(f'({"onk" if a in inside else "offk"} {name} "{a}")' for a in axes)
        elif term.kind is Kind.NUM:
            leaves[name] = term
            lines.append(f'(let {name} (Num "{name}"))')
        else:
            args = " ".join(names[a] for a in term.args)
            bound = f'"{axis_of(term)}" ' if term.kind in REDUCTIONS else ""
            lines.append(f"(let {name} ({_NAMES[term.kind]} {bound}{args}))")
    for number, axis in enumerate(a for a in axes if a in extents and is_countable(extents[a])):
        name = f"$n{number}"
        leaves[name] = cast_to(num(extents[axis], DType.I32), DType.F32)
        lines.append(f'(let {name} (Leaf "{name}")) (extent "{axis}" {name})')
        lines.extend(f'(indep {name} "{a}") (offk {name} "{a}")' for a in axes)
    leaves["$minus"] = num(-1.0, DType.F32)
    lines.append('(let $minus (Num "$minus")) (minus $minus)')
    lines.append(f"(let $root {names[root]}) (relation isroot (T)) (isroot $root)")
    return "\n".join(lines), leaves


def is_countable(extent: Size) -> bool:
    """Whether an axis has a first value, and a length that f32 holds exactly, at every size."""
    low, high = bounds(extent)
    return low >= 1 and high <= _COUNTED


def _algebra(root: Term) -> tuple[set[Term], set[Term]]:
    """Terms to encode, and which of them are opaque: anything that is not f32 arithmetic."""
    reachable: set[Term] = set()
    opaque: set[Term] = set()
    stack = [root]
    while stack:
        term = stack.pop()
        if term in reachable:
            continue
        reachable.add(term)
        if term.dtype is DType.F32 and term.kind in _NAMES:
            stack.extend(term.args)
        elif term.kind is not Kind.NUM or term.dtype is not DType.F32:
            opaque.add(term)
    return reachable, opaque


def _read_back(graph: EGraph) -> tuple[tuple[ENode, ...], tuple[tuple[str, tuple[str, ...]], ...], str]:
    serialized = graph.serialize(
        [], max_functions=None, max_calls_per_function=None, include_temporary_functions=True
    )
    raw = json.loads(serialized.to_json())["nodes"]
    nodes: list[ENode] = []
    facts: list[tuple[str, tuple[str, ...]]] = []
    root = ""
    for entry in raw.values():
        children = tuple(
            raw[c]["eclass"] if raw[c]["op"] in OPERATORS else raw[c]["op"].strip('"')
            for c in entry["children"]
        )
        if entry["op"] in OPERATORS:
            nodes.append(ENode(entry["op"], entry["eclass"], children))
        elif entry["op"] in RELATIONS:
            facts.append((entry["op"], children))
        elif entry["op"] == "isroot":
            root = children[0]
    return tuple(sorted(nodes, key=lambda n: (n.op, n.children))), tuple(sorted(facts)), root
