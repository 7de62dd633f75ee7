"""Index arithmetic, proven by brute force: every value of every axis at several sizes of each symbol."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir import DType, Size, bind, symbol, symbols
from compiler.lower.indexing import (
    Linear,
    add_index,
    const_index,
    divide,
    flatten,
    index_term,
    interval,
    is_below,
    linear,
    multiply_index,
    scale_index,
    unflatten,
)
from compiler.lower.recombine import recombined_term
from compiler.lower.terms import Kind, Term, axis_of, idx, load, make, topological

N, M = symbol("N", 1, 4), symbol("M", 2, 3)
AXES: Mapping[str, Size] = {"a": 4, "b": 3, "n": N, "m": M, "p": N * M}
SIZES: tuple[Size, ...] = (1, 2, 3, 4, 6, 8, N, M, N * M, M * 4, N * 2)
FEW = settings(max_examples=25, deadline=None)
DIMS = [{"N": n, "M": m} for n in (1, 2, 4) for m in (2, 3)]


def values(term: Term, axes: Collection[str], dims: Mapping[str, int]) -> Any:
    """The integers a term is over the whole of `axes`: the definition, in NumPy."""
    if term.kind is Kind.NUM:
        return np.array(bind(cast(Size, term.attr), dims))
    if term.kind is Kind.IDX:
        grid = np.meshgrid(*(np.arange(bind(AXES[a], dims)) for a in axes), indexing="ij")
        return grid[list(axes).index(axis_of(term))]
    x, y = (values(a, axes, dims) for a in term.args)
    match term.kind:
        case Kind.ADD:
            return x + y
        case Kind.MUL:
            return x * y
        case Kind.FLOOR_DIV:
            return x // y
        case Kind.FLOOR_MOD:
            return x % y
    raise AssertionError(term)


def everywhere(*terms: Term) -> Iterator[tuple[list[np.ndarray], dict[str, int]]]:
    """The values of each term at all points, for every size."""
    axes = sorted(frozenset().union(*(t.free for t in terms)))
    for dims in DIMS:
        yield [values(t, axes, dims) for t in terms], dims


@st.composite
def indices(draw: st.DrawFn, depth: int = 2) -> Term:
    """A non-negative index: a sum of scaled axes, quotients and remainders of such, and a constant."""
    total = const_index(draw(st.integers(0, 7)))
    for _ in range(draw(st.integers(1, 3))):
        atom = idx(draw(st.sampled_from(sorted(AXES))))
        if depth and draw(st.booleans()):
            kind = draw(st.sampled_from([Kind.FLOOR_DIV, Kind.FLOOR_MOD]))
            inner, by = draw(indices(depth - 1)), const_index(draw(st.sampled_from(SIZES)))
            atom = make(kind, (inner, by), DType.I32)
        total = add_index(total, scale_index(atom, draw(st.sampled_from(SIZES))))
    return total


def assert_inside(term: Term) -> None:
    low, high = interval(linear(term), AXES)
    for (found,), dims in everywhere(term):
        assert low is None or found.min() >= low
        assert high is None or found.max() <= bind(high, dims)


@pytest.mark.pitfall("C7")
@FEW
@given(indices(), st.sampled_from(SIZES))
def test_dividing_gives_the_quotient_and_the_remainder(term: Term, divisor: Size) -> None:
    for (whole, quotient, rest), dims in everywhere(term, *divide(term, divisor, AXES)):
        assert (quotient == whole // bind(divisor, dims)).all()
        assert (rest == whole % bind(divisor, dims)).all()


@FEW
@given(indices())
def test_an_interval_holds_every_value(term: Term) -> None:
    assert_inside(term)


@FEW
@given(indices(), st.sampled_from(SIZES))
def test_what_is_proven_below_a_limit_is_below_it(term: Term, limit: Size) -> None:
    proven = is_below(linear(term), limit, AXES)
    for (found,), dims in everywhere(term):
        assert not proven or (found.min() >= 0 and found.max() < bind(limit, dims))


@pytest.mark.pitfall("C7")
@FEW
@given(indices(), st.integers(-3, 3), st.integers(-5, 5))
def test_an_interval_holds_with_negative_coefficients_too(term: Term, by: int, offset: int) -> None:
    moved = add_index(scale_index(term, by), const_index(offset))
    assert_inside(moved)


@FEW
@given(indices())
def test_recombining_changes_no_value(term: Term) -> None:
    assert all((better == found).all() for (better, found), _ in everywhere(recombined_term(term), term))


@FEW
@given(st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=4, unique=True))
def test_unflattening_undoes_flattening(axes: list[str]) -> None:
    at, shape = [idx(a) for a in axes], [AXES[a] for a in axes]
    assert unflatten(flatten(at, shape), shape, AXES) == at


@FEW
@given(indices(depth=0), indices(depth=0))
def test_sums_do_not_depend_on_the_order(x: Term, y: Term) -> None:
    assert add_index(x, y) is add_index(y, x)


@FEW
@given(indices())
def test_the_normal_form_of_a_normal_form_is_itself(term: Term) -> None:
    assert index_term(linear(term)) is term


@FEW
@given(indices(), indices())
def test_a_product_is_the_product(x: Term, y: Term) -> None:
    assert all((p == a * b).all() for (p, a, b), _ in everywhere(multiply_index(x, y), x, y))


def test_a_quotient_and_its_remainder_recombine_under_any_scale() -> None:
    x = idx("p")
    quotient = make(Kind.FLOOR_DIV, (x, const_index(M)), DType.I32)
    rest = make(Kind.FLOOR_MOD, (x, const_index(M)), DType.I32)
    split = add_index(scale_index(quotient, M * 6), scale_index(rest, 6))
    assert recombined_term(split) is scale_index(x, 6)


@pytest.mark.pitfall("C7")
def test_different_quotients_do_not_recombine() -> None:
    quotient = make(Kind.FLOOR_DIV, (idx("p"), const_index(4)), DType.I32)
    rest = make(Kind.FLOOR_MOD, (idx("a"), const_index(4)), DType.I32)
    split = add_index(scale_index(quotient, 4), rest)
    assert recombined_term(split) is split


@pytest.mark.pitfall("C7")
def test_an_index_read_from_memory_has_no_bounds() -> None:
    assert interval(Linear({load("table", [idx("a")], DType.I32): 1}, 0), AXES) == (None, None)


@pytest.mark.parametrize("kind", [Kind.FLOOR_DIV, Kind.FLOOR_MOD])
def test_a_divisor_read_from_memory_proves_nothing_and_breaks_nothing(kind: Kind) -> None:
    divisor = load("table", [idx("a")], DType.I32)
    term = make(kind, (idx("p"), divisor), DType.I32)
    assert interval(linear(term), AXES)[1] is None
    assert not is_below(linear(term), 1000, AXES)
    assert recombined_term(term) is term


def test_terms_in_normal_form_hold_no_nested_sums() -> None:
    term = add_index(scale_index(add_index(idx("a"), idx("b")), 3), scale_index(idx("a"), -3))
    assert term is scale_index(idx("b"), 3)
    assert [t.kind for t in topological([term])] == [Kind.IDX, Kind.NUM, Kind.MUL]


def test_symbols_of_a_divisor_survive_in_the_quotient() -> None:
    quotient, rest = divide(scale_index(idx("a"), N * M), M, AXES)
    assert symbols(linear(quotient).coefficients[idx("a")]) == symbols(N)
    assert rest is const_index(0)
