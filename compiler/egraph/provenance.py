"""Which rules a form came from: those without which the e-graph does not hold it.

Asked for a form that the gate refused, or that a person wants explained; a saturation for each rule is too
dear to do for every one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from compiler.egraph.extract import Extractor
from compiler.egraph.rule import Rule
from compiler.egraph.rules import RULES
from compiler.egraph.saturate import KINDS, ENode, Saturated, saturate
from compiler.ir.dim import Size
from compiler.lower.first import first_along
from compiler.lower.terms import REDUCTIONS, Term, axis_of


def rules_behind(
    forms: Iterable[Term],
    original: Term,
    rules: tuple[Rule, ...] = RULES,
    extents: Mapping[str, Size] = MappingProxyType({}),
) -> Mapping[Term, tuple[str, ...]]:
    """For each form, names of the rules that it cannot be reached from `original` without; none for the
    original itself.
    """
    behind: dict[Term, list[str]] = {form: [] for form in forms}
    for rule in rules:
        others = tuple(r for r in rules if r is not rule)
        held = _Membership(saturate(original, others, extents=extents))
        for form, names in behind.items():
            if form is not original and not held.holds(form):
                names.append(rule.name)
    return {form: tuple(names) for form, names in behind.items()}


class _Membership:
    """Whether a term is one of the root's forms, told by matching it against the e-graph's nodes."""

    def __init__(self, saturated: Saturated) -> None:
        self._saturated = saturated
        self._nodes: dict[str, list[ENode]] = {}
        for node in saturated.nodes:
            self._nodes.setdefault(node.eclass, []).append(node)
        chooser = Extractor(saturated)
        chooser.root()
        self._chosen = chooser
        self._known: dict[tuple[str, Term], bool] = {}

    def holds(self, term: Term) -> bool:
        return self._in(self._saturated.root, term)

    def _in(self, eclass: str, term: Term) -> bool:
        if (eclass, term) not in self._known:
            self._known[eclass, term] = False  # a class inside itself adds nothing
            self._known[eclass, term] = any(self._matches(n, term) for n in self._nodes.get(eclass, ()))
        return self._known[eclass, term]

    def _matches(self, node: ENode, term: Term) -> bool:
        if node.op in ("Leaf", "Num"):
            return self._saturated.leaves[node.children[0]] is term
        if node.op == "First":
            inner = self._chosen.term_of(node.children[1])
            return inner is not None and first_along(inner, node.children[0]) is term
        if KINDS[node.op] is not term.kind:
            return False
        classes = node.children
        if term.kind in REDUCTIONS:
            axis, *classes_below = node.children
            if axis != axis_of(term):
                return False
            classes = tuple(classes_below)
        return all(self._in(c, a) for c, a in zip(classes, term.args, strict=True))
