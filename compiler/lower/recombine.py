"""Recombine quotients and remainders: `n*(x // n) + x % n` is `x`, whatever the scale in front."""

from __future__ import annotations

from typing import cast

from compiler.ir.dim import Size
from compiler.lower.indexing import Linear, index_term, linear
from compiler.lower.terms import Kind, Term


def recombined(form: Linear) -> Linear:
    """The same index with every matching quotient and remainder pair put together again; exact."""
    current = form
    while (better := _one_step(current)) is not None:
        current = better
    return current


def recombined_term(term: Term) -> Term:
    return index_term(recombined(linear(term)))


def _one_step(form: Linear) -> Linear | None:
    for rest, c in form.coefficients.items():
        if rest.kind is not Kind.FLOOR_MOD or rest.args[1].kind is not Kind.NUM:
            continue
        x, n = rest.args[0], cast(Size, rest.args[1].attr)
        for quotient, scale in form.coefficients.items():
            if quotient.kind is Kind.FLOOR_DIV and quotient.args == rest.args and scale == c * n:
                return _replace(form, (rest, quotient), x, c)
    return None


def _replace(form: Linear, gone: tuple[Term, Term], x: Term, c: Size) -> Linear:
    left = {t: k for t, k in form.coefficients.items() if t not in gone}
    inner = linear(x)
    for atom, k in inner.coefficients.items():
        left[atom] = left.get(atom, 0) + k * c
    return Linear({t: k for t, k in left.items() if k != 0}, form.constant + inner.constant * c)
