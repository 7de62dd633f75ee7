"""Cascaded reductions: correction factors by their numbers, and the passes that plans need."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.ir import DType
from compiler.lower.interpret import interpret
from compiler.lower.online import correction, pass_levels, passes, reductions_over
from compiler.lower.terms import (
    Kind,
    Term,
    add,
    exp2,
    idx,
    is_number,
    load,
    mul,
    negate,
    num,
    old,
    online,
    recip,
    reduction,
    sub,
    substitute,
    topological,
    unary,
)

K = "k"
FEW = settings(max_examples=80, deadline=None)


def number(value: float) -> Term:
    return num(value, DType.F32)


def row(name: str) -> Term:
    """A value that does not vary along k."""
    return load(name, [], DType.F32)


def column(name: str) -> Term:
    """A value that varies along k."""
    return load(name, [idx(K)], DType.F32)


X = column("x")
MAX = reduction(Kind.MAX, K, X)
TOTAL = reduction(Kind.SUM, K, mul(X, X))


def at(term: Term, values: dict[Term, float], rows: dict[str, float]) -> float:
    """A term's value where each running reduction, new or `OLD`, is a number."""
    plain = substitute(term, {t: row(f"v{i}") for i, t in enumerate(values)})
    buffers = {f"v{i}": np.array(v) for i, v in enumerate(values.values())}
    buffers |= {name: np.array(v) for name, v in rows.items()}
    return float(interpret(plain, [], {}, buffers, {}))


@st.composite
def independents(draw: st.DrawFn, depth: int = 3) -> Term:
    """Factors that read running reductions: exponentials, products, reciprocals, anything else positive."""
    if depth == 0:
        return draw(st.sampled_from([exp2(negate(MAX)), exp2(MAX), row("c"), TOTAL, unary(Kind.SQRT, TOTAL)]))
    match draw(st.integers(0, 3)):
        case 0:
            return exp2(draw(exponents(depth - 1)))
        case 1:
            return mul(draw(independents(depth - 1)), draw(independents(depth - 1)))
        case 2:
            return recip(draw(independents(depth - 1)))
        case _:
            return draw(independents(0))


@st.composite
def exponents(draw: st.DrawFn, depth: int = 2) -> Term:
    if depth == 0:
        return draw(
            st.sampled_from([MAX, negate(MAX), row("c"), unary(Kind.LOG2, TOTAL), mul(MAX, row("c"))])
        )
    a, b = draw(exponents(depth - 1)), draw(exponents(depth - 1))
    return add(a, b) if draw(st.booleans()) else mul(a, number(draw(st.sampled_from([-0.5, 0.25]))))


@FEW
@given(independents(), st.lists(st.floats(0.5, 2.0), min_size=5, max_size=5))
def test_a_correction_takes_the_old_factor_to_the_new(independent: Term, numbers: list[float]) -> None:
    new_max, old_max, new_total, old_total, c = numbers
    new, before = {MAX: new_max, TOTAL: new_total}, {MAX: old_max, TOTAL: old_total}
    both = {**new, old(MAX): old_max, old(TOTAL): old_total}
    factor = at(correction(independent, [MAX, TOTAL]), both, {"c": c})
    wanted = at(independent, new, {"c": c}) / at(independent, before, {"c": c})
    assert factor == pytest.approx(wanted, rel=1e-9)


def test_a_factor_that_reads_no_running_value_needs_no_correction() -> None:
    assert is_number(correction(exp2(row("c")), [MAX]), 1.0)


def test_the_correction_of_an_exponential_is_one_exponential_of_a_difference() -> None:
    factor = correction(exp2(mul(negate(MAX), number(1.5))), [MAX])
    assert [t.kind for t in topological([factor])].count(Kind.EXP2) == 1
    # finite although either exponential alone overflows
    assert at(factor, {MAX: 3000.0, old(MAX): 2999.0}, {}) == pytest.approx(2**-1.5)


def test_a_row_that_is_fully_masked_so_far_is_corrected_by_one() -> None:
    factor = correction(exp2(negate(MAX)), [MAX])
    assert at(factor, {MAX: -3.4e38, old(MAX): -3.4e38}, {}) == 1.0


def test_the_first_real_value_of_a_row_clears_what_came_before() -> None:
    factor = correction(exp2(negate(MAX)), [MAX])
    assert at(factor, {MAX: 1.0, old(MAX): -3.4e38}, {}) == 0.0


# Passes


SHIFTED = exp2(sub(X, MAX))
DENOMINATOR = reduction(Kind.SUM, K, SHIFTED)
ONLINE = online(K, SHIFTED, exp2(negate(MAX)))


def levels(term: Term) -> dict[Term, int]:
    return dict(pass_levels(reductions_over(term, K)))


def test_a_reduction_that_reads_another_waits_for_its_pass() -> None:
    assert levels(DENOMINATOR) == {MAX: 0, DENOMINATOR: 1}


def test_an_online_reduction_runs_beside_what_its_factor_reads() -> None:
    assert levels(ONLINE) == {MAX: 0, ONLINE: 0}


def test_an_online_reduction_waits_for_what_its_factor_does_not_read() -> None:
    body = mul(SHIFTED, recip(ONLINE))
    weighted = online(K, body, exp2(negate(MAX)))
    assert levels(weighted)[weighted] == 1


def test_three_chained_reductions_take_three_passes() -> None:
    variance = reduction(Kind.SUM, K, mul(SHIFTED, recip(DENOMINATOR)))
    assert passes(variance) == 3


def test_passes_of_different_axes_add_up() -> None:
    inner = reduction(Kind.SUM, "j", load("y", [idx("j"), idx(K)], DType.F32))
    assert passes(reduction(Kind.MAX, K, inner)) == 2


def test_a_term_without_reductions_needs_no_pass() -> None:
    assert passes(exp2(row("c"))) == 0
