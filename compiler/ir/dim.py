"""Sizes of axes: integers, or polynomials with integer coefficients over named, bounded symbols.

A symbol's name identifies it. Constants collapse to `int`, so a `Dim` always names at least one symbol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from compiler.errors import DimError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_]*)|(\d+)|([-+*]))")


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """A size known only when a program runs; between `low` and `high`, both inclusive."""

    name: str
    low: int = field(compare=False)
    high: int = field(compare=False)


Monomial: TypeAlias = tuple[Symbol, ...]  # sorted, a symbol once per power; () is the constant


@dataclass(frozen=True, slots=True)
class Dim:
    """A polynomial: `terms` holds (monomial, coefficient), highest degree first, no zero coefficient."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Size) -> Size:
        return _collect((*self.terms, *_terms(other)))

    def __radd__(self, other: int) -> Size:
        return self + other

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return self + other * -1

    def __rsub__(self, other: int) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        return _collect((tuple(sorted(m + n)), a * b) for m, a in self.terms for n, b in _terms(other))

    def __rmul__(self, other: int) -> Size:
        return self * other

    def __bool__(self) -> bool:
        """Refused: no branch of a program can hang on a size that it has only when it is run."""
        raise DimError(f"the size {self} has no truth value before the program is run")

    def __str__(self) -> str:
        text = ""
        for monomial, coefficient in self.terms:
            sign = " - " if coefficient < 0 else " + "
            names = [s.name for s in monomial]
            factors = names if names and abs(coefficient) == 1 else [*names, str(abs(coefficient))]
            text += (sign if text else sign.strip(" +")) + "*".join(factors)
        return text

    def __repr__(self) -> str:
        return str(self)


Size: TypeAlias = int | Dim
Shape: TypeAlias = tuple[Size, ...]


def symbol(name: str, low: int, high: int) -> Dim:
    """A size called `name`, between `low` and `high` inclusive.

    Raises:
        DimError: `name` is not an identifier, or the bounds are negative or empty.
    """
    if not _NAME.fullmatch(name):
        raise DimError(f"a symbol's name is an identifier, not {name!r}")
    if not 0 <= low <= high:
        raise DimError(f"symbol {name} needs 0 <= low <= high, got {low}..{high}")
    return Dim((((Symbol(name, low, high),), 1),))


def symbols(size: Size) -> tuple[Symbol, ...]:
    """The symbols of `size`, sorted by name."""
    return tuple(sorted({s for monomial, _ in _terms(size) for s in monomial}))


def bind(size: Size, values: Mapping[str, int]) -> int:
    """The integer that `size` is when each symbol has its value.

    Raises:
        DimError: a symbol has no value, or a value outside its bounds.
    """
    total = 0
    for monomial, coefficient in _terms(size):
        product = coefficient
        for s in monomial:
            product *= _value_of(s, values)
        total += product
    return total


def bounds(size: Size) -> tuple[int, int]:
    """Bounds (inclusive) that `size` never leaves; exact unless one symbol pulls in both directions."""
    low = high = 0
    for monomial, coefficient in _terms(size):
        least = most = coefficient
        for s in monomial:
            least, most = least * s.low, most * s.high
        low, high = low + min(least, most), high + max(least, most)
    return low, high


def divides(divisor: Size, size: Size) -> bool:
    """Whether `size` is a polynomial multiple of `divisor`, hence divisible whatever the symbols are."""
    return _divide(size, divisor) is not None


def floordiv_exact(size: Size, divisor: Size) -> Size:
    """`size / divisor`, where `divides(divisor, size)`.

    Raises:
        DimError: `size` is not a polynomial multiple of `divisor`.
    """
    quotient = _divide(size, divisor)
    if quotient is None:
        raise DimError(f"{size} is not a multiple of {divisor}")
    return quotient


def product(sizes: Iterable[Size]) -> Size:
    result: Size = 1
    for size in sizes:
        result = result * size
    return result


def parse_size(text: str, known: Mapping[str, Dim]) -> Size:
    """Read back `str(size)`; `known` maps a symbol's name to the symbol.

    Raises:
        DimError: the text is not a sum of products of known symbols and integers.
    """
    tokens = _tokens(text)
    total: Size = 0
    sign, factors = 1, list[Size]()
    expects_factor = True
    for token in tokens:
        if expects_factor and token == "-" and not factors:
            sign = -sign
        elif expects_factor and token not in ("+", "-", "*"):
            factors.append(_factor(token, known))
            expects_factor = False
        elif not expects_factor and token == "*":
            expects_factor = True
        elif not expects_factor and token in ("+", "-"):
            total = total + product(factors) * sign
            sign, factors, expects_factor = (1 if token == "+" else -1), [], True
        else:
            raise DimError(f"{text!r} is not a size: {token!r} is out of place")
    if expects_factor:
        raise DimError(f"{text!r} is not a size: it ends early")
    return total + product(factors) * sign


def _tokens(text: str) -> list[str]:
    tokens, position = list[str](), 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None:
            raise DimError(f"{text!r} is not a size")
        tokens.append(match.group().strip())
        position = match.end()
    return tokens


def _factor(token: str, known: Mapping[str, Dim]) -> Size:
    if token.isdigit():
        return int(token)
    if token not in known:
        raise DimError(f"symbol {token} is not declared")
    return known[token]


def _terms(size: Size) -> tuple[tuple[Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else (((), size),)


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Size:
    """Add equal monomials, drop zeros, order, and collapse a constant to `int`."""
    total: dict[Monomial, int] = {}
    seen: dict[str, Symbol] = {}
    for monomial, coefficient in terms:
        for s in monomial:
            known = seen.setdefault(s.name, s)
            if (known.low, known.high) != (s.low, s.high):
                raise DimError(f"symbol {s.name} has bounds {known.low}..{known.high} and {s.low}..{s.high}")
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = sorted(((m, c) for m, c in total.items() if c), key=lambda term: (-len(term[0]), term[0]))
    if all(not monomial for monomial, _ in kept):
        return sum(coefficient for _, coefficient in kept)
    return Dim(tuple(kept))


def _divide(size: Size, divisor: Size) -> Size | None:
    """Polynomial long division by leading terms; None where it leaves a remainder."""
    if divisor == 0:
        return None
    lead, lead_coefficient = _terms(divisor)[0]
    quotient: Size = 0
    rest = size
    while rest != 0:
        monomial, coefficient = _terms(rest)[0]
        left = list(monomial)
        for s in lead:
            if s not in left:
                return None
            left.remove(s)
        if coefficient % lead_coefficient:
            return None
        step = _collect([(tuple(left), coefficient // lead_coefficient)])
        quotient, rest = quotient + step, rest - step * divisor
    return quotient


def _value_of(s: Symbol, values: Mapping[str, int]) -> int:
    if s.name not in values:
        raise DimError(f"symbol {s.name} has no value")
    value = values[s.name]
    if not s.low <= value <= s.high:
        raise DimError(f"{s.name} = {value} is outside {s.low}..{s.high}")
    return value
