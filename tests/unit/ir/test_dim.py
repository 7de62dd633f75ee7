"""Sizes: polynomials that agree with the integers they stand for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import DimError
from compiler.ir.dim import Dim, Size, bind, bounds, divides, floordiv_exact, parse_size, symbol, symbols

KNOWN = {name: symbol(name, low, high) for name, low, high in (("T", 1, 64), ("M", 0, 9), ("NB", 3, 3))}
values = st.fixed_dictionaries({"T": st.integers(1, 64), "M": st.integers(0, 9), "NB": st.just(3)})


def sizes() -> st.SearchStrategy[Size]:
    leaves = st.one_of(st.integers(-20, 20), st.sampled_from(list(KNOWN.values())))
    return st.recursive(
        leaves,
        lambda inner: st.tuples(inner, inner, st.sampled_from("+-*")).map(lambda abo: _combine(*abo)),
        max_leaves=6,
    )


def _combine(a: Size, b: Size, op: str) -> Size:
    return {"+": a + b, "-": a - b, "*": a * b}[op]


@given(sizes(), sizes(), values, st.sampled_from("+-*"))
def test_arithmetic_on_sizes_is_arithmetic_on_their_values(a, b, v, op):
    assert bind(_combine(a, b, op), v) == _combine(bind(a, v), bind(b, v), op)


@given(sizes())
def test_text_reads_back_to_the_same_size(size):
    assert parse_size(str(size), KNOWN) == size


@given(sizes(), values)
def test_bounds_hold_whatever_the_symbols_are(size, v):
    low, high = bounds(size)
    assert low <= bind(size, v) <= high


@given(sizes(), sizes().filter(lambda s: s != 0))
def test_a_product_divides_back_exactly(a, b):
    assert divides(b, a * b)
    assert floordiv_exact(a * b, b) == a


@given(sizes(), sizes())
def test_equal_sizes_hash_alike(a, b):
    assert (a + b, hash(a + b)) == (b + a, hash(b + a))


def test_constants_collapse_to_integers():
    t = KNOWN["T"]
    assert isinstance(t - t + 3, int)
    assert isinstance(t * 0, int)


def test_a_name_identifies_a_symbol():
    assert symbol("T", 1, 64) == KNOWN["T"]
    assert str(symbol("T", 1, 64) * 16) == "T*16"


def test_symbols_are_listed_by_name():
    assert [s.name for s in symbols(KNOWN["T"] * KNOWN["M"] + 1)] == ["M", "T"]


def test_a_size_that_is_no_multiple_is_refused():
    with pytest.raises(DimError, match="not a multiple"):
        floordiv_exact(KNOWN["T"] * 6 + 1, 3)


def test_nothing_divides_by_zero():
    assert not divides(0, KNOWN["T"])


def test_a_symbol_keeps_one_range():
    with pytest.raises(DimError, match="bounds"):
        symbol("T", 1, 64) + symbol("T", 1, 65)


@pytest.mark.parametrize(("name", "low", "high"), [("2x", 0, 1), ("x", -1, 1), ("x", 2, 1), ("", 0, 1)])
def test_a_malformed_symbol_is_refused(name, low, high):
    with pytest.raises(DimError):
        symbol(name, low, high)


@pytest.mark.parametrize("text", ["", "T T", "T*", "+", "T**2", "X", "3.5", "T+-", "(T)"])
def test_malformed_text_is_refused(text):
    with pytest.raises(DimError):
        parse_size(text, KNOWN)


@pytest.mark.parametrize("given_values", [{}, {"T": 65}, {"T": 0}])
def test_a_missing_or_unbounded_value_is_refused(given_values):
    with pytest.raises(DimError):
        bind(KNOWN["T"] + 1, given_values)


def test_a_size_is_a_dim_or_an_integer():
    assert isinstance(KNOWN["T"] + 0, Dim)
