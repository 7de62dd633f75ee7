"""Cascaded reductions: passes an axis needs, and the correction factor of a one-pass (online) reduction.

`ONLINE(k, body, i)` equals `SUM(k, body)` and promises `body = d * i` with `i` independent of `k`. When the
running
reductions that `i` reads move, what has been summed so far is multiplied by `i(new) / i(old)`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from compiler.lower.terms import (
    REDUCTIONS,
    Kind,
    Term,
    add,
    axis_of,
    exp2,
    is_number,
    mul,
    num,
    old,
    recip,
    sub,
    substitute,
    topological,
)


def reads_any(term: Term, running: Collection[Term]) -> bool:
    return any(t in running for t in topological([term]))


def correction(independent: Term, running: Collection[Term]) -> Term:
    """`c` with `i[new] = c * i[old]`, in a form that cannot overflow when `running` are maxima.

    `OLD(r)` stands for the value of the running reduction `r` before this tile.
    """
    if not reads_any(independent, running):
        return num(1.0, independent.dtype)
    match independent.kind:
        case Kind.EXP2:
            return exp2(_delta(independent.args[0], running))
        case Kind.MUL:
            return mul(correction(independent.args[0], running), correction(independent.args[1], running))
        case Kind.RECIP:
            return recip(correction(independent.args[0], running))
        case _:
            return mul(independent, recip(_before(independent, running)))


def _delta(term: Term, running: Collection[Term]) -> Term:
    """`term[new] - term[old]`."""
    if not reads_any(term, running):
        return num(0.0, term.dtype)
    if term.kind is Kind.ADD:
        a, b = (_delta(x, running) for x in term.args)
        if is_number(a, 0.0):
            return b
        return a if is_number(b, 0.0) else add(a, b)
    if term.kind is Kind.MUL:
        a, b = term.args
        if not reads_any(b, running):
            return mul(_delta(a, running), b)
        if not reads_any(a, running):
            return mul(_delta(b, running), a)
    return sub(term, _before(term, running))


def _before(term: Term, running: Collection[Term]) -> Term:
    return substitute(term, {r: old(r) for r in running})


def reductions_over(term: Term, axis: str) -> list[Term]:
    """Every reduction over `axis` in `term`, arguments first."""
    return [x for x in topological([term]) if x.kind in REDUCTIONS and axis_of(x) == axis]


def pass_levels(reductions: Collection[Term]) -> Mapping[Term, int]:
    """The pass (0, 1, ..) of one loop in which each reduction over one axis can run.

    A reduction that reads another one's final value waits for the next pass; an ONLINE one may run beside
    those
    that only its independent factor reads.
    """
    levels: dict[Term, int] = {}
    for r in reductions:
        covered = set(topological([r.args[1]])) if r.kind is Kind.ONLINE else set()
        below = [x for x in topological([r.args[0]]) if x in levels and x is not r]
        levels[r] = max((levels[x] + (0 if x in covered else 1) for x in below), default=0)
    return levels


def passes(term: Term) -> int:
    """Passes over all axes that `term` needs, summed; one for each reduced axis at least."""
    axes = {axis_of(x) for x in topological([term]) if x.kind in REDUCTIONS}
    total = 0
    for axis in axes:
        levels = pass_levels(reductions_over(term, axis))
        total += max(levels.values()) + 1
    return total
