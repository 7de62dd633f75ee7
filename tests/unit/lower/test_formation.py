"""Tile programs, run in NumPy: every program under random schedules gives what its definition says."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compiler.ir import DType, Graph
from compiler.lower.canonical import Canonical
from compiler.lower.errors import FormationError
from compiler.lower.formation import form
from compiler.lower.interpret import interpret
from compiler.lower.tiles import Kernel
from compiler.lower.verify import verify_kernel
from compiler.search.candidates import forms
from compiler.search.inputs import InputSet, make_inputs
from tests.support.chained import instances
from tests.support.programs import PROGRAMS, graph_of, sizes_of
from tests.support.random_schedules import schedules_of
from tests.support.random_tensors import computations
from tests.support.tile_machine import TileMachine

SOME = settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
SIZES = ((1, 1), (3, 16), (2, 37))


@cache
def variants_of(name: str) -> list[Canonical]:
    """Each definition as written and in its chosen form, whose correction factors stay finite."""
    written = [i.canonical for i in instances(graph_of(name))]
    return [*written, *(d.with_term(forms(d, 0)[0]) for d in written)]


def inputs_of(definition: Canonical, dims: dict[str, int]) -> dict[str, np.ndarray]:
    """Unit normal values; a mask lets each row see something."""
    inputs = make_inputs(definition, dims, InputSet.UNIT, 1)
    for name, buffer in definition.buffers.items():
        if buffer.dtype is DType.BOOL:
            inputs[name][..., 0] = True
    return inputs


def assert_computes(definition: Canonical, kernel: Kernel, dims: dict[str, int]) -> None:
    inputs = inputs_of(definition, dims)
    wanted = interpret(definition.term, definition.axes, definition.extents, inputs, dims)
    found = TileMachine(kernel, inputs, dims).run()
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - {"inverted"}))
@SOME
@given(data=st.data())
def test_any_schedule_that_can_be_formed_computes_the_program(name: str, data: st.DataObject) -> None:
    variant = data.draw(st.sampled_from(variants_of(name)))
    schedule = data.draw(schedules_of(variant))
    rows, columns = data.draw(st.sampled_from(SIZES))
    try:
        kernel = form(variant, schedule)
    except FormationError:
        return
    verify_kernel(kernel)
    assert_computes(variant, kernel, dict(sizes_of(name, rows, columns)))


@settings(SOME, max_examples=40)
@given(computations(), st.data())
def test_random_computations_are_formed_rightly(graph: Graph, data: st.DataObject) -> None:
    definition = data.draw(st.sampled_from([i.canonical for i in instances(graph)]))
    schedule = data.draw(schedules_of(definition))
    try:
        kernel = form(definition, schedule)
    except FormationError:
        return
    verify_kernel(kernel)
    dims = {"N": data.draw(st.sampled_from([1, 2, 5]))}
    assert_computes(definition, kernel, dims)
