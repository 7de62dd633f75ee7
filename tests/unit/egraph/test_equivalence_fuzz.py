"""Every form that can be extracted from a random definition has its value, and what is formed of it too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.egraph.extract import Extractor
from compiler.egraph.saturate import Limits, saturate
from compiler.ir import DType, Graph
from compiler.lower.canonical import Canonical
from compiler.lower.formation import form
from compiler.lower.interpret import interpret
from compiler.lower.schedule import LoopChoice, Schedule
from compiler.lower.terms import Term, topological
from compiler.search.inputs import InputSet, make_inputs
from tests.support.chained import instances
from tests.support.class_oracle import judge_classes
from tests.support.random_cascades import cascades
from tests.support.random_tensors import DIMS, computations
from tests.support.tile_machine import TileMachine

Array = npt.NDArray[Any]
LIMITS = Limits(e_nodes=600, rounds=12)
SIZES = ({"T": 4, "S": 1}, {"T": 3, "S": 7})


def extracted(d: Canonical, seeds: int = 6) -> list[Term]:
    """Forms from many choices of every class: by cost, by passes, with operators banned, and with noise."""
    saturated = saturate(d.term, limits=LIMITS, extents=d.extents)
    choosers = [Extractor(saturated), Extractor(saturated, pass_weight=6000.0)]
    choosers += [Extractor(saturated, banned=(op,)) for op in ("Online", "First")]
    choosers += [Extractor(saturated, seed=s, temperature=2.0) for s in range(seeds)]
    return list(dict.fromkeys(c.root() for c in choosers))


def values(d: Canonical, term: Term, inputs: dict[str, Array], dims: dict[str, int]) -> Array:
    return interpret(term, d.axes, d.extents, inputs, dims)


def assert_near(found: Array, wanted: Array, term: Term) -> None:
    """Equal where the original is finite and of moderate size; never spoiled there."""
    kept = np.isfinite(wanted) & (np.abs(wanted) < 1e6)
    assert np.isfinite(found[kept]).all(), term
    np.testing.assert_allclose(found[kept], wanted[kept], rtol=1e-6, atol=1e-5, err_msg=str(term))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cascades(), st.integers(0, 99))
def test_all_forms_of_a_random_cascade_have_its_value(d: Canonical, seed: int) -> None:
    forms = extracted(d)
    for dims in SIZES:
        inputs = make_inputs(d, dims, InputSet.UNIT, seed)
        wanted = values(d, d.term, inputs, dims)
        for term in forms:
            assert_near(values(d, term, inputs, dims), wanted, term)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cascades())
def test_all_members_of_a_random_cascade_agree(d: Canonical) -> None:
    saturated = saturate(d.term, limits=LIMITS, extents=d.extents)
    assert judge_classes(saturated, d, {"T": 3, "S": 5}).wrong == ()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(cascades(), st.integers(0, 99))
def test_a_tile_program_of_each_form_of_a_random_cascade_has_its_value(d: Canonical, seed: int) -> None:
    """In float64, so that what a running reduction adds of its own would show."""
    dims = SIZES[1]
    inputs = make_inputs(d, dims, InputSet.UNIT, seed)
    wanted = values(d, d.term, inputs, dims)
    for term in extracted(d, seeds=2):
        kernel = form(d.with_term(term), Schedule((LoopChoice("o0", 2),), 1, "k0", 3))
        with np.errstate(all="ignore"):
            assert_near(TileMachine(kernel, inputs, dims).run(), wanted, term)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(computations(), st.integers(0, 2))
def test_all_forms_of_a_random_graph_have_its_value(graph: Graph, size: int) -> None:
    for instance in instances(graph):
        d, dims = instance.canonical, dict(DIMS[size])
        if d.term.dtype is not DType.F32 or len(topological([d.term])) > 120:
            continue
        inputs = make_inputs(d, dims, InputSet.UNIT, size)
        wanted = values(d, d.term, inputs, dims)
        for term in extracted(d, seeds=3):
            assert_near(values(d, term, inputs, dims), wanted, term)
