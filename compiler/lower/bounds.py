"""Loop bounds from masks: where a comparison that is false folds every body of a pass to its identity.

Nothing here knows masks by shape: a condition is folded to false, and the arithmetic decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.ir.dtype import DType
from compiler.lower.indexing import add_index, const_index
from compiler.lower.terms import REDUCTIONS, Kind, Term, axis_of, num, substitute, topological

_INF = float("inf")


@dataclass(frozen=True, slots=True)
class StreamBounds:
    """Half-open bounds of a stream axis, and the conditions that hold everywhere inside them."""

    lower: Term | None
    upper: Term | None
    proven: tuple[Term, ...]


def derive(axis: str, bodies: Sequence[tuple[Term, Kind]], tiled: frozenset[str]) -> StreamBounds:
    """Bounds of a pass over `axis` whose reductions have these bodies.

    Only bounds that are one value for the whole tile are taken: an index that mentions one of the `tiled`
    axes
    is left as a mask.
    """
    lower: Term | None = None
    upper: Term | None = None
    proven: list[Term] = []
    for cond in topological([b for b, _ in bodies]):
        if cond.kind is not Kind.LT:
            continue
        a, b = cond.args
        is_upper = upper is None and _is_axis(a, axis) and axis not in b.free and not b.free & tiled
        is_lower = lower is None and _is_axis(b, axis) and axis not in a.free and not a.free & tiled
        if not (is_upper or is_lower) or not all(_folds_to_identity(x, kind, cond) for x, kind in bodies):
            continue
        if is_upper:
            upper = b
            proven.append(cond)
        else:
            lower = add_index(a, const_index(1))  # the loop starts at a whole tile, so the mask stays
    return StreamBounds(lower, upper, tuple(proven))


def assume(term: Term, conditions: Sequence[Term], running: Sequence[Term]) -> Term:
    """`term` where every condition is known to be true; the `running` reductions stay as they are."""
    if not conditions:
        return term
    kept = {r: r for r in running}
    return substitute(term, kept | {c: num(True, DType.BOOL) for c in conditions})


def _is_axis(term: Term, axis: str) -> bool:
    return term.kind is Kind.IDX and axis_of(term) == axis


def _folds_to_identity(body: Term, kind: Kind, cond: Term) -> bool:
    value = fold(body, cond, {})
    return value == (-_INF if kind is Kind.MAX else 0.0)


def fold(term: Term, false: Term, memo: dict[Term, float | None]) -> float | None:
    """The number `term` is when `false` is false, or None; every other leaf is taken to be finite."""
    if term in memo:
        return memo[term]
    memo[term] = value = _fold(term, false, memo)
    return value


def _fold(term: Term, false: Term, memo: dict[Term, float | None]) -> float | None:
    if term is false:
        return 0.0
    if term.kind is Kind.NUM and isinstance(term.attr, float | bool):
        return float(term.attr)
    if term.kind in REDUCTIONS or term.kind is Kind.LOAD or term.dtype is DType.I32:
        return None
    if term.kind is Kind.SELECT:
        picked, yes, no = (fold(a, false, memo) for a in term.args)
        if picked is None:  # `a & b` is select(a, b, false): false either way when b is
            return yes if yes == no else None
        return yes if picked else no
    return _arithmetic(term.kind, [fold(a, false, memo) for a in term.args])


def _arithmetic(kind: Kind, values: list[float | None]) -> float | None:
    if kind is Kind.CAST:
        return values[0]
    if kind is Kind.ADD and -_INF in values:
        return -_INF
    if kind is Kind.MUL and 0.0 in values:
        return 0.0
    if kind is Kind.MUL and -_INF in values and any(v is not None and v > 0 for v in values):
        return -_INF
    if kind is Kind.EXP2 and values[0] == -_INF:
        return 0.0
    if kind is Kind.LOG2 and values[0] == 0.0:
        return -_INF
    if kind is Kind.DIV and values[0] == 0.0:
        return 0.0
    return None
