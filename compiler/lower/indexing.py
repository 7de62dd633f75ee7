"""Integer index terms: linear normal form, exact division by sizes, and provable bounds.

An index is `sum(coefficient * atom) + constant`; an atom is any other i32 term. Coefficients and the
constant are
`Size`s, so symbolic strides work. Division splits off the multiples of the divisor and drops the rest when
its
upper bound proves it smaller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from compiler.ir.dim import Dim, Size, bounds, divides, floordiv_exact
from compiler.ir.dtype import DType
from compiler.lower.terms import Kind, Term, axis_of, make, num

Extents = Mapping[str, Size]


@dataclass(frozen=True, slots=True)
class Linear:
    """`sum(coefficients[atom] * atom) + constant`."""

    coefficients: Mapping[Term, Size]
    constant: Size


def linear(term: Term) -> Linear:
    """The normal form of an i32 term."""
    assert term.dtype is DType.I32, term
    if term.kind is Kind.NUM:
        return Linear({}, cast(Size, term.attr))
    if term.kind is Kind.ADD:
        a, b = linear(term.args[0]), linear(term.args[1])
        merged = dict(a.coefficients)
        for atom, c in b.coefficients.items():
            merged[atom] = merged.get(atom, 0) + c
        return Linear({t: c for t, c in merged.items() if c != 0}, a.constant + b.constant)
    if term.kind is Kind.MUL and term.args[1].kind is Kind.NUM:
        return _scaled(linear(term.args[0]), cast(Size, term.args[1].attr))
    return Linear({term: 1}, 0)


def _scaled(form: Linear, by: Size) -> Linear:
    return Linear({t: c * by for t, c in form.coefficients.items() if c * by != 0}, form.constant * by)


def index_term(form: Linear) -> Term:
    """The one term of a normal form: atoms ordered by their digest, the constant last."""
    total: Term | None = None
    for atom in sorted(form.coefficients, key=lambda t: (_weight(form.coefficients[t]), t.key)):
        c = form.coefficients[atom]
        scaled = atom if c == 1 else make(Kind.MUL, (atom, num(c, DType.I32)), DType.I32)
        total = scaled if total is None else make(Kind.ADD, (total, scaled), DType.I32)
    if total is None:
        return num(form.constant, DType.I32)
    if form.constant == 0:
        return total
    return make(Kind.ADD, (total, num(form.constant, DType.I32)), DType.I32)


def _weight(c: Size) -> tuple[int, str]:
    return (-bounds(c)[1], str(c))


def add_index(a: Term, b: Term) -> Term:
    return index_term(linear(make(Kind.ADD, (a, b), DType.I32)))


def scale_index(a: Term, by: Size) -> Term:
    return index_term(_scaled(linear(a), by))


def multiply_index(a: Term, b: Term) -> Term:
    """A product of two indices; linear when either is a constant."""
    for x, y in ((a, b), (b, a)):
        form = linear(y)
        if not form.coefficients:
            return scale_index(x, form.constant)
    return make(Kind.MUL, (a, b) if a.key <= b.key else (b, a), DType.I32)


def const_index(value: Size) -> Term:
    return num(value, DType.I32)


def flatten(indices: Sequence[Term], shape: Sequence[Size]) -> Term:
    """Row-major position of `indices` in `shape`."""
    total = const_index(0)
    for index, size in zip(indices, shape, strict=True):
        total = add_index(scale_index(total, size), index)
    return total


def unflatten(position: Term, shape: Sequence[Size], extents: Extents) -> list[Term]:
    """Indices in `shape` of a row-major position; the inverse of `flatten` for positions inside the shape."""
    out: list[Term] = []
    for size in reversed(shape[1:]):
        position, rest = divide(position, size, extents)
        out.append(rest)
    return [position, *reversed(out)] if shape else []


def divide(term: Term, divisor: Size, extents: Extents) -> tuple[Term, Term]:
    """`(term // divisor, term % divisor)` for a non-negative index and a positive divisor."""
    if divisor == 1:
        return term, const_index(0)
    form = linear(term)
    high = {t: floordiv_exact(c, divisor) for t, c in form.coefficients.items() if divides(divisor, c)}
    low = {t: c for t, c in form.coefficients.items() if not divides(divisor, c)}
    whole, part = _split_constant(form.constant, divisor)
    quotient, rest = Linear(high, whole), Linear(low, part)
    if is_below(rest, divisor, extents):
        return index_term(quotient), index_term(rest)
    rest_term, by = index_term(rest), num(divisor, DType.I32)
    carried = make(Kind.FLOOR_DIV, (rest_term, by), DType.I32)
    return add_index(index_term(quotient), carried), make(Kind.FLOOR_MOD, (rest_term, by), DType.I32)


def _split_constant(constant: Size, divisor: Size) -> tuple[Size, Size]:
    if isinstance(constant, int) and isinstance(divisor, int):
        return divmod(constant, divisor)
    if divides(divisor, constant):
        return floordiv_exact(constant, divisor), 0
    return 0, constant


def is_below(form: Linear, limit: Size, extents: Extents) -> bool:
    """Whether `0 <= form < limit` is proven."""
    low, high = interval(form, extents)
    return low is not None and high is not None and low >= 0 and bounds(limit - high)[0] > 0


def interval(form: Linear, extents: Extents) -> tuple[int | None, Size | None]:
    """A lower bound (integer) and an upper bound (size), both inclusive; None where unknown."""
    low: int | None = bounds(form.constant)[0]
    high: Size | None = form.constant
    for atom, c in form.coefficients.items():
        a_low, a_high = _atom_interval(atom, extents)
        c_low, c_high = bounds(c)
        if c_low >= 0:
            low = None if low is None or a_low is None else low + min(c_low * a_low, c_high * a_low)
            high = None if high is None or a_high is None else high + c * a_high
        else:
            known = c_high <= 0 and a_low is not None and a_high is not None and low is not None
            low = low + c_low * bounds(cast(Size, a_high))[1] if known and low is not None else None
            high = high + c * a_low if known and high is not None and a_low is not None else None
    return low, high


def _atom_interval(atom: Term, extents: Extents) -> tuple[int | None, Size | None]:
    match atom.kind:
        case Kind.IDX:
            extent = extents.get(axis_of(atom))
            return 0, None if extent is None else extent - 1
        case Kind.FLOOR_MOD | Kind.FLOOR_DIV if not _is_positive_constant(atom.args[1]):
            return None, None
        case Kind.FLOOR_MOD:
            return 0, cast(Size, atom.args[1].attr) - 1
        case Kind.FLOOR_DIV:
            low, high = interval(linear(atom.args[0]), extents)
            divisor = cast(Size, atom.args[1].attr)
            known_low = None if low is None or low < 0 else 0
            return known_low, None if high is None else _floor_quotient(high, divisor)
        case _:
            return None, None


def _is_positive_constant(term: Term) -> bool:
    return term.kind is Kind.NUM and bounds(cast(Size, term.attr))[0] > 0


def _floor_quotient(high: Size, divisor: Size) -> Size | None:
    """At least floor(high / divisor), for a polynomial `high` whose non-constant part the divisor divides."""
    if isinstance(high, int):
        return high // divisor if isinstance(divisor, int) else None
    constant = next((c for monomial, c in high.terms if not monomial), 0)
    main = high - constant
    if not divides(divisor, main):
        return None
    tail = -1 if constant < 0 else constant // bounds(divisor)[0]
    return floordiv_exact(main, divisor) + tail


def mentions_symbol(size: Size) -> bool:
    return isinstance(size, Dim)
