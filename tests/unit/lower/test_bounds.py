"""Loop bounds from masks: what is visited is what the masks leave, tile by tile."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from compiler.ir import DType
from compiler.lower.bounds import assume, derive, fold
from compiler.lower.formation import form
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.lower.terms import (
    Kind,
    Term,
    add,
    binary,
    exp2,
    idx,
    load,
    make,
    mul,
    num,
    select,
    show,
)
from tests.support.chained import instances
from tests.support.chosen import chosen, row_kernel, stream_of
from tests.support.program_values import values_of
from tests.support.programs import WINDOW, graph_of, sizes_of
from tests.support.tile_machine import TileMachine

BLOCK = 8
COLUMNS = 45


def run(name: str, positions: list[int], columns: int = COLUMNS) -> TileMachine:
    graph = graph_of(name)
    dims = dict(sizes_of(name, len(positions), columns))
    values = values_of(graph, dims)
    values["positions"] = np.array(positions, np.int32)
    arguments = instances(graph)[0].arguments
    buffers = {new: values[old.split(":")[1]] for new, old in arguments.items() if ":" in old}
    machine = TileMachine(row_kernel(chosen(name), BLOCK), buffers, dims)
    assert not np.isnan(machine.run()).any()
    return machine


def tiles_up_to(position: int) -> int:
    return ceil((position + 1) / BLOCK)


def tiles_of_window(position: int) -> int:
    first = max(0, position - WINDOW + 1) // BLOCK
    return tiles_up_to(position) - first


CAUSAL = ("causal_attention", "soft_capped_attention", "alibi_attention")
POSITIONS = [0, 6, 7, 8, 9, 15, 16, 43, 44]


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", CAUSAL)
def test_a_row_visits_the_tiles_up_to_its_own_position(name: str, position: int) -> None:
    machine = run(name, [position])
    heads = 2
    assert machine.visited[stream_of(chosen(name))] == heads * tiles_up_to(position)
    assert sorted(set(machine.points[stream_of(chosen(name))])) == list(range(position + 1))


def test_rows_visit_as_many_tiles_as_each_alone() -> None:
    visited = run("causal_attention", POSITIONS).visited[stream_of(chosen("causal_attention"))]
    assert visited == 2 * sum(map(tiles_up_to, POSITIONS))


@pytest.mark.pitfall("C15")
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("name", ["sliding_window_attention", "window_of_two_masks"])
def test_a_window_visits_the_tiles_that_it_touches(name: str, position: int) -> None:
    visited = run(name, [position]).visited[stream_of(chosen(name))]
    assert visited == 2 * tiles_of_window(position)


@pytest.mark.parametrize("length", [1, 8, 16, 17, 40])
def test_a_sequence_visits_its_own_length_of_a_paged_cache(length: int) -> None:
    machine = run("paged_attention", [length - 1], columns=48)
    assert machine.visited[stream_of(chosen("paged_attention"))] == 4 * ceil(length / BLOCK)


@pytest.mark.pitfall("C15")
def test_a_mask_without_an_order_bounds_nothing() -> None:
    definition = chosen("padded_attention")
    assert "upper" not in repr(row_kernel(chosen("padded_attention"), BLOCK)).replace("upper=None", "")
    assert stream_of(definition)


def test_no_bound_is_taken_from_rows_that_share_a_tile() -> None:
    definition = chosen("causal_attention")
    loops = (LoopChoice("o0", 4), *(LoopChoice(a, 1) for a in definition.axes[1:-1]))
    kernel = form(definition, Schedule(loops, len(loops), stream_of(definition), BLOCK))
    assert "upper" not in repr(kernel).replace("upper=None", "")


# Derivation by hand


X = load("x", [idx("k")], DType.F32)
LIMIT = load("n", [], DType.I32)
BELOW = binary(Kind.LT, idx("k"), LIMIT)
ABOVE = binary(Kind.LT, LIMIT, idx("k"))
MINUS_INF = num(float("-inf"), DType.F32)
ZERO = num(0.0, DType.F32)


def masked(condition: Term) -> Term:
    return add(X, select(condition, ZERO, MINUS_INF))


def test_a_condition_above_gives_a_lower_bound_and_stays_a_mask() -> None:
    bounds = derive("k", [(masked(ABOVE), Kind.MAX)], frozenset())
    assert bounds.lower is not None
    assert (show(bounds.lower), bounds.upper, bounds.proven) == ("(n[] + 1)", None, ())


def test_a_condition_below_gives_an_upper_bound_and_is_proven_inside() -> None:
    bounds = derive("k", [(masked(BELOW), Kind.MAX)], frozenset())
    assert (bounds.upper, bounds.proven) == (LIMIT, (BELOW,))
    assert assume(masked(BELOW), bounds.proven, []) is add(X, ZERO)


@pytest.mark.pitfall("C15")
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (X, Kind.MAX),
        (select(BELOW, X, num(1.0, DType.F32)), Kind.SUM),
        (select(BELOW, X, ZERO), Kind.MAX),
        (add(X, mul(num(-1e9, DType.F32), select(BELOW, ZERO, num(1.0, DType.F32)))), Kind.MAX),
        (select(BELOW, MINUS_INF, X), Kind.MAX),
    ],
    ids=["no mask", "other value", "not the identity", "finite mask", "anti-causal"],
)
def test_a_body_that_does_not_fold_to_its_identity_gives_no_bound(body: Term, kind: Kind) -> None:
    assert derive("k", [(body, kind)], frozenset()) == derive("k", [], frozenset())


def test_one_unmasked_reduction_of_a_pass_keeps_the_whole_loop() -> None:
    bodies = [(masked(BELOW), Kind.MAX), (X, Kind.SUM)]
    assert derive("k", bodies, frozenset()).upper is None


@pytest.mark.pitfall("C15")
def test_a_condition_on_values_is_no_bound() -> None:
    by_value = binary(Kind.LT, X, load("y", [], DType.F32))
    assert derive("k", [(masked(by_value), Kind.MAX)], frozenset()).upper is None


def test_a_bound_that_varies_along_a_tiled_axis_is_left_as_a_mask() -> None:
    below_row = binary(Kind.LT, idx("k"), idx("i"))
    assert derive("k", [(masked(below_row), Kind.MAX)], frozenset("i")).upper is None
    assert derive("k", [(masked(below_row), Kind.MAX)], frozenset()).upper is idx("i")


@pytest.mark.parametrize(
    ("term", "value"),
    [
        (masked(BELOW), -np.inf),
        (exp2(masked(BELOW)), 0.0),
        (mul(X, exp2(masked(BELOW))), 0.0),
        (mul(masked(BELOW), num(2.0, DType.F32)), -np.inf),
        (mul(masked(BELOW), num(-2.0, DType.F32)), None),
        (mul(masked(BELOW), X), None),
        (add(X, X), None),
        (select(select(BELOW, binary(Kind.LT, X, X), num(False, DType.BOOL)), X, ZERO), 0.0),
        (make(Kind.DIV, (select(BELOW, X, ZERO), X), DType.F32), 0.0),
    ],
)
def test_what_a_false_condition_makes_of_a_term(term: Term, value: float | None) -> None:
    assert fold(term, BELOW, {}) == value
