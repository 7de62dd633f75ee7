"""The first value along an axis: a substitution of index 0, as any view is one."""

from __future__ import annotations

from compiler.ir.dtype import DType
from compiler.lower.indexing import const_index, index_term, linear
from compiler.lower.terms import Kind, Term, axis_of, is_zero_index, make, rebuild, topological


def first_along(root: Term, axis: str) -> Term:
    """`root` where `axis` is 0; a reduction that binds the same name keeps its own."""
    done: dict[Term, Term] = {}
    for term in topological([root]):
        done[term] = term if axis not in term.free else _one(term, tuple(done[a] for a in term.args), axis)
    return done[root]


def _one(term: Term, args: tuple[Term, ...], axis: str) -> Term:
    if term.kind is Kind.IDX:
        assert axis_of(term) == axis
        return const_index(0)
    if term.kind in (Kind.FLOOR_DIV, Kind.FLOOR_MOD) and is_zero_index(args[0]):
        return const_index(0)
    if term.dtype is DType.I32 and term.kind in (Kind.ADD, Kind.MUL):
        return index_term(linear(make(term.kind, args, term.dtype)))
    return rebuild(term, args)
