"""Extraction: one acyclic choice per class, lowest cost, bottom-up; seeded noise gives other plans.

Ties and noise are keyed by a term's own digest, never by egglog's ids, so a seed gives the same term
everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from compiler.egraph.saturate import KINDS, ENode, Saturated
from compiler.ir.dtype import DType
from compiler.lower.first import first_along
from compiler.lower.online import passes
from compiler.lower.terms import REDUCTIONS, Kind, Term, make, num, online, rebuild, topological

_WEIGHTS: Mapping[Kind, float] = {
    Kind.EXP2: 8, Kind.LOG2: 8, Kind.SIN: 8, Kind.SQRT: 4, Kind.RECIP: 4, Kind.DIV: 4,
    Kind.ADD: 1, Kind.MUL: 1, Kind.SELECT: 1, Kind.MOD: 2, Kind.SUM: 40, Kind.MAX: 40, Kind.ONLINE: 25,
}  # fmt: skip
_PASS = 60.0  # each pass over an axis; without it ties are broken in favour of multi-pass plans
_SWEEPS = 40


@dataclass(slots=True)
class _Choice:
    cost: float
    term: Term


@dataclass(slots=True)
class Extractor:
    """Chooses one term per class of `saturated`. `banned` operators are not chosen."""

    saturated: Saturated
    seed: int = 0
    temperature: float = 0.0
    banned: Collection[str] = ()
    pass_weight: float = _PASS
    _best: dict[str, _Choice] = field(default_factory=dict)
    _costs: dict[Term, float] = field(default_factory=dict)

    def root(self) -> Term:
        """The chosen form of the whole definition."""
        for _ in range(_SWEEPS):
            if not self._sweep():
                break
        return self._best[self.saturated.root].term

    def term_of(self, eclass: str) -> Term | None:
        """The chosen form of a class, after `root`."""
        held = self._best.get(eclass)
        return None if held is None else held.term

    def _sweep(self) -> bool:
        changed = False
        for node in self.saturated.nodes:
            term = self._build(node) if node.op not in self.banned else None
            if term is None:
                continue
            cost, held = self._cost(term), self._best.get(node.eclass)
            is_tie = held is not None and abs(cost - held.cost) < 1e-9
            if held is None or cost < held.cost - 1e-9 or (is_tie and term.key < held.term.key):
                self._best[node.eclass] = _Choice(cost, term)
                changed = True
        return changed

    def _build(self, node: ENode) -> Term | None:
        if node.op in ("Leaf", "Num"):
            return self.saturated.leaves[node.children[0]]
        if node.op == "First":
            held = self._best.get(node.children[1])
            return None if held is None else first_along(held.term, node.children[0])
        kind = KINDS[node.op]
        names = node.children[1:] if kind in REDUCTIONS else node.children
        if any(n not in self._best for n in names):
            return None
        args = tuple(self._best[n].term for n in names)
        if kind is Kind.ONLINE:
            return online(node.children[0], args[0], args[1])
        if kind in REDUCTIONS:
            return make(kind, args, DType.F32, node.children[0])
        return rebuild(make(kind, tuple(num(0.0, a.dtype) for a in args), DType.F32), args)

    def _cost(self, term: Term) -> float:
        if term not in self._costs:
            self._costs[term] = self._counted(term)
        return self._costs[term]

    def _counted(self, term: Term) -> float:
        ops = sum(_WEIGHTS.get(t.kind, 0.0) * self._noise(t) for t in topological([term]))
        return ops + self.pass_weight * self._noise(term) * passes(term)

    def _noise(self, term: Term) -> float:
        if self.temperature == 0.0:
            return 1.0
        digest = hashlib.sha256(f"{self.seed}|{term.key}".encode()).hexdigest()
        return float(2 ** (self.temperature * (2 * int(digest[:8], 16) / 2**32 - 1)))


def variants(saturated: Saturated, original: Term, seeds: int) -> tuple[Term, ...]:
    """Distinct forms of a definition, best by cost first: greedy, without online reductions, of fewest
    passes, seeded, as written.
    """
    found = [Extractor(saturated).root(), Extractor(saturated, banned=("Online",)).root()]
    found.append(Extractor(saturated, pass_weight=10 * _PASS).root())
    found.extend(Extractor(saturated, seed=s, temperature=1.0).root() for s in range(seeds))
    return tuple(dict.fromkeys([*found, original]))
