"""Saturation and extraction: one pass where there is one, the same terms in every process, bounded work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.egraph.extract import Extractor, variants
from compiler.egraph.saturate import Limits, saturate
from compiler.frontend import Trace
from compiler.ir import DType
from compiler.lower.canonical import Canonical
from compiler.lower.formation import form
from compiler.lower.online import pass_levels, passes, reductions_over
from compiler.lower.terms import Kind, Term, axis_of, products, topological
from compiler.lower.tiles import Kernel, Loop
from compiler.search.candidates import forms
from compiler.search.space import schedules
from tests.support.chained import instances
from tests.support.chosen import chosen, definition_of, stream_of
from tests.support.programs import ONE_PASS, graph_of

ATTENTIONS = [name for name in ONE_PASS if "attention" in name or "window" in name]


def passes_over(term: Term, axis: str) -> int:
    return max(pass_levels(reductions_over(term, axis)).values()) + 1


def loops_over(body: tuple[object, ...], axis: str) -> int:
    """Loops over `axis` in a kernel, one after another."""
    inner = [item for item in body if isinstance(item, Loop)]
    return sum((item.axis == axis) + loops_over(item.body, axis) for item in inner)


# One pass


@pytest.mark.parametrize("name", ONE_PASS)
def test_the_chosen_form_visits_the_long_axis_once(name: str) -> None:
    before, after = definition_of(name), chosen(name)
    assert passes_over(after.term, stream_of(after)) == 1
    assert passes_over(before.term, stream_of(before)) > 1


@pytest.mark.parametrize("name", ONE_PASS)
def test_the_maximum_is_still_subtracted(name: str) -> None:
    kinds = [x.kind for x in topological([chosen(name).term])]
    assert Kind.MAX in kinds
    assert Kind.ONLINE in kinds


def kernels(definition: Canonical) -> list[Kernel]:
    return [form(definition, s) for s in schedules(definition)]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_no_kernel_holds_rows_by_columns_and_each_has_one_loop_over_the_columns(name: str) -> None:
    definition = chosen(name)
    rows, columns = definition.axes[0], stream_of(definition)
    for kernel in kernels(definition):
        assert loops_over(kernel.body, columns) == 1
        assert kernel.blocks[columns] <= 64
        assert all(kernel.blocks[rows] == 1 or columns not in tile.axes for tile in kernel.tiles())
        assert {p.buffer for p in kernel.params if p.is_written} == {definition.place.buffer}


def test_a_reduction_that_needs_two_passes_keeps_them() -> None:
    assert passes(chosen("two_exponents").term) > 1


@pytest.mark.parametrize("name", ["row_variance", "layer_normed", "shortfall"])
def test_a_sum_of_shifted_values_takes_one_pass(name: str) -> None:
    assert passes(definition_of(name).term) == 2
    assert passes(chosen(name).term) == 1


@pytest.mark.pitfall("C32")
def test_what_reads_a_running_value_beside_its_factor_is_no_online_reduction() -> None:
    """(x - m) * exp2(x - m) cannot be rescaled: only its exponential can, once the difference is apart."""
    online = [x for x in topological([chosen("expected_difference").term]) if x.kind is Kind.ONLINE]
    assert online
    rests = [t for x in online for t in products(x.args[0]) if t.kind is not Kind.EXP2]
    assert rests
    assert [t for t in rests if reductions_over(t, axis_of(online[0]))] == []


def test_a_form_of_fewest_passes_is_among_those_of_a_search() -> None:
    assert min(passes(f) for f in forms(definition_of("centred_product"), 0)) == 1


def test_a_factor_of_a_row_leaves_the_sum() -> None:
    term = chosen("rms_normed_product").term
    assert term.kind is Kind.MUL
    assert {x.kind for x in topological([term.args[0]])} & {Kind.RECIP, Kind.SQRT}


floats = st.floats(-(2.0**100), 2.0**100, width=32)


@settings(max_examples=200, deadline=None)
@given(st.lists(floats | st.just(-np.inf), min_size=1, max_size=9), floats | st.just(-np.inf))
def test_taking_a_term_out_of_a_maximum_changes_no_bit(values: list[float], term: float) -> None:
    x, i = np.array(values, np.float32), np.float32(term)
    assert (x + i).max() == i + x.max()


# Variants


def test_the_first_variant_is_greedy_and_the_input_is_always_one() -> None:
    term = definition_of("weighted_mean").term
    saturated = saturate(term)
    found = variants(saturated, term, 3)
    assert found[0] is Extractor(saturated).root()
    assert term in found
    assert len(set(found)) == len(found)


def test_a_banned_operator_is_not_chosen() -> None:
    saturated = saturate(definition_of("attention").term)
    term = Extractor(saturated, banned=("Online",)).root()
    assert Kind.ONLINE not in {x.kind for x in topological([term])}


def test_seeds_find_other_forms() -> None:
    term = definition_of("attention").term
    assert len(variants(saturate(term), term, 12)) >= 5


@pytest.mark.pitfall("C30")
def test_one_seed_gives_one_form() -> None:
    saturated = saturate(definition_of("attention").term)
    first, second = (Extractor(saturated, seed=5, temperature=1.0).root() for _ in range(2))
    assert first is second


@pytest.mark.pitfall("C11")
def test_a_narrowing_cast_stays_at_the_root() -> None:
    definition = definition_of("product_bf16")
    assert all(f.kind is Kind.CAST and f.dtype is DType.BF16 for f in forms(definition, 2))


@pytest.mark.pitfall("C11")
@pytest.mark.parametrize("name", ["swiglu", "gated_mlp", "rms_normed_product"])
def test_no_form_of_an_f32_program_narrows(name: str) -> None:
    terms = [form for i in instances(graph_of(name)) for form in forms(i.canonical, 4)]
    narrowed = [x for x in topological(terms) if x.kind is Kind.CAST and x.dtype is not DType.F32]
    assert narrowed == []


def test_an_integer_result_has_no_other_form() -> None:
    trace = Trace()
    x = trace.input("x", (4, 8), DType.I32)
    (instance,) = instances(trace.finish({"out": x.sum(1)}))
    assert forms(instance.canonical, 4) == (instance.canonical.term,)


# Bounded and repeatable


@pytest.mark.parametrize("name", ["soft_capped_attention", "quotient", "normalised", "gated_mlp"])
def test_saturation_ends_by_itself(name: str) -> None:
    term = definition_of(name).term
    more = Limits(rounds=2 * Limits().rounds)
    assert saturate(term).e_nodes == saturate(term, limits=more).e_nodes < 300


def test_a_limit_stops_saturation_and_leaves_the_input() -> None:
    term = definition_of("attention").term
    stopped = saturate(term, limits=Limits(e_nodes=1))
    assert stopped.e_nodes < saturate(term).e_nodes
    assert Extractor(stopped).root() is term


def test_no_time_left_leaves_the_input_too() -> None:
    term = definition_of("attention").term
    assert passes(Extractor(saturate(term, limits=Limits(seconds=0.0))).root()) <= passes(term)


def test_what_is_not_f32_arithmetic_is_a_leaf() -> None:
    saturated = saturate(definition_of("paged_attention_bf16").term)
    leaves = {x.kind for x in saturated.leaves.values()}
    assert leaves <= {Kind.LOAD, Kind.CAST, Kind.NUM, Kind.LT}


def test_the_same_forms_are_found_in_processes_that_hash_differently() -> None:
    script = (
        "from compiler.search.candidates import forms\n"
        "from tests.support.chained import instances\n"
        "from tests.support.programs import graph_of\n"
        "for name in ('attention', 'weighted_mean', 'normalised', 'quotient', 'biased'):\n"
        "    (i,) = instances(graph_of(name))\n"
        "    print(name, [f.key for f in forms(i.canonical, 6)])\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "7")
    }
    assert len(outputs) == 1
    assert outputs.pop().count("attention") == 1
