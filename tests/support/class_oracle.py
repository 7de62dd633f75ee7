"""Judges a saturated e-graph by numbers: every member of every class has one value, every promise holds.

Knows nothing of rules: it builds a term for each e-node and computes it in float64 at small random sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.egraph.saturate import KINDS, ENode, Saturated
from compiler.ir import DType, bind
from compiler.lower import terms as t
from compiler.lower.canonical import Canonical
from compiler.lower.first import first_along
from compiler.lower.interpret import interpret
from compiler.lower.online import reductions_over
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of, topological
from compiler.search.inputs import InputSet, make_inputs

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Findings:
    """How much was compared, and each disagreement in words."""

    members: int
    promises: int
    wrong: tuple[str, ...]


def judge_classes(saturated: Saturated, definition: Canonical, dims: Mapping[str, int]) -> Findings:
    """Compare the members of each class, and check each ONLINE's promise."""
    inputs = make_inputs(definition, dims, InputSet.UNIT, 3)
    extents = dict(definition.extents)

    def value(term: Term) -> Array:
        axes = sorted(extents)
        reached = {axis_of(x) for x in topological([term]) if x.kind in REDUCTIONS}
        free = [a for a in axes if a in term.free]
        kept = {a: extents[a] for a in {*free, *reached}}
        found = interpret(term, free, kept, inputs, dims)
        shape = [bind(extents[a], dims) if a in term.free else 1 for a in axes]
        return found.reshape(shape)

    members = promises = 0
    wrong: list[str] = [
        f"{name} {held} does not hold"
        for name, held, holds in _facts(saturated, sorted(extents), value)
        if not holds
    ]
    for held, term in _members(saturated):
        members += 1
        if not _agree(value(held), value(term)):
            wrong.append(f"{held} is not {term}")
        if term.kind is Kind.ONLINE:
            promises += 1
            if not _keeps_promise(term, value):
                wrong.append(f"{term} breaks its promise")
    return Findings(members, promises, tuple(wrong))


def _facts(
    saturated: Saturated, axes: list[str], value: Callable[[Term], Array]
) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Each fact that says something about values, and whether it holds of them."""
    best = _representatives(saturated)

    def is_still(eclass: str, axis: str) -> bool:
        x = value(best[eclass])
        return _agree(x, np.take(x, [0], axes.index(axis)))

    for name, held in saturated.facts:
        terms = [c for c in held if c in best]
        if name in ("sfac", "xfac", "asp", "shf"):
            whole, *parts = (value(best[c]) for c in terms)
            with np.errstate(all="ignore"):
                made = parts[0] + parts[1] if name == "asp" else parts[0] * parts[1]
                made = (parts[1] + parts[2]) * parts[0] if name == "shf" else made
            yield name, held, _agree(whole, made) and is_still(terms[-1], held[1])
        elif name == "indep":
            yield name, held, is_still(held[0], held[1])


def _representatives(saturated: Saturated) -> dict[str, Term]:
    """The first term found of each class."""
    best: dict[str, Term] = {}
    for _ in range(len(saturated.nodes)):
        found = {n.eclass: made for n in saturated.nodes if (made := _build(n, saturated, best)) is not None}
        fresh = {c: term for c, term in found.items() if c not in best}
        if not fresh:
            break
        best.update(fresh)
    return best


def _members(saturated: Saturated) -> Iterator[tuple[Term, Term]]:
    """The first term found of a class, and each member of it."""
    best = _representatives(saturated)
    for node in saturated.nodes:
        made = _build(node, saturated, best)
        if made is not None:
            yield best[node.eclass], made


def _build(node: ENode, saturated: Saturated, best: Mapping[str, Term]) -> Term | None:
    if node.op in ("Leaf", "Num"):
        return saturated.leaves[node.children[0]]
    if node.op == "First":
        return first_along(best[node.children[1]], node.children[0]) if node.children[1] in best else None
    kind = KINDS[node.op]
    bound, names = (node.children[0], node.children[1:]) if kind in REDUCTIONS else (None, node.children)
    if any(name not in best for name in names):
        return None
    return t.make(kind, tuple(best[name] for name in names), DType.F32, bound)


def _agree(a: Array, b: Array) -> bool:
    """Equal where both are finite, over the axes that either has."""
    with np.errstate(all="ignore"):
        a, b = np.broadcast_arrays(a, b)
        both = np.isfinite(a) & np.isfinite(b)
        return bool(np.allclose(a[both], b[both], rtol=1e-9, atol=1e-9))


def _keeps_promise(term: Term, value: Callable[[Term], Array]) -> bool:
    """`body` moves as its independent factor does when the running reductions that the factor reads move.

    Other reductions that the body reads are final by then, as the ONLINE waits for them.
    """
    body, independent = term.args
    axis = axis_of(term)
    if axis in independent.free:
        return False
    read = reductions_over(body, axis)
    running = [r for r in reductions_over(independent, axis) if r in read]
    final = {r: r for r in read if r not in running}

    def moved(x: Term, by: float) -> Array:
        return value(t.substitute(x, final | {r: t.add(r, t.num(by, DType.F32)) for r in running}))

    with np.errstate(all="ignore"):
        body_ratio = moved(body, 0.25) / moved(body, -0.5)
        factor_ratio = moved(independent, 0.25) / moved(independent, -0.5)
    return _agree(body_ratio, factor_ratio)
