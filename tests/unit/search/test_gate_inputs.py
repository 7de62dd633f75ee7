"""The inputs of gate and clock: indices inside what they index, masks that cut, sets as described."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.checkpoint import config_from_hf
from compiler.ir import DType, bf16_to_f32, bind
from compiler.lower import terms as t
from compiler.lower.canonical import Canonical
from compiler.lower.interpret import interpret
from compiler.search.cuts import starting_cuts
from compiler.search.inputs import InputSet, index_limits, input_sets, make_inputs
from compiler.search.tuner import gate_sizes
from compiler.zoo.llama import build_llama
from tests.support.chained import instances
from tests.support.chosen import definition_of
from tests.support.programs import S, T
from tests.support.tiny_checkpoints import TINY, tiny_config

DIMS = {"T": 40, "S": 90}
LONGEST_TILE = 64


def of_llama() -> dict[str, Canonical]:
    """The definitions of a small model's first layer by what they write or read first."""
    graph = build_llama(config_from_hf(tiny_config(TINY["gqa"])), dtype="bf16", max_context=4096)
    return {i.definition.name: i.canonical for i in instances(graph, starting_cuts(graph))}


LLAMA = of_llama()
ATTENDING = next(
    d for d in LLAMA.values() if {"M", "NB"} <= {str(n) for b in d.buffers.values() for n in b.shape}
)
WRITING = [d for d in LLAMA.values() if d.place.limits]


def test_positions_fall_inside_the_axis_they_are_compared_with() -> None:
    definition = definition_of("causal_attention")
    positions = make_inputs(definition, DIMS, InputSet.UNIT, 0)["b2"]
    assert index_limits(definition) == {"b2": (S,)}
    assert positions.min() < 16
    assert 64 <= positions.max() < DIMS["S"]


def test_the_least_of_several_limits_holds() -> None:
    dims = {"T": 30, "B": 3, "M": 5, "NB": 16}
    limits = {tuple(str(n) for n in found) for found in index_limits(ATTENDING).values()}
    assert ("4096", "M*16") in limits
    inputs = make_inputs(ATTENDING, dims, InputSet.UNIT, 0)
    assert max(int(x.max()) for x in inputs.values() if x.dtype == np.int32) < 5 * 16


@pytest.mark.parametrize("number", [0, 2])
def test_gate_sizes_take_several_tiles_of_a_cache(number: int) -> None:
    dims = gate_sizes(ATTENDING)[number]
    assert dims["M"] * 16 > 2 * LONGEST_TILE
    assert dims["NB"] >= dims["B"] * dims["M"] + 1


def test_gate_sizes_respect_bounds_and_include_the_smallest() -> None:
    sizes = gate_sizes(definition_of("causal_attention"))
    assert {"T": 1, "S": 7} in sizes
    assert all(bind(n, dims) == dims[str(n)] for dims in sizes for n in (T, S))


@pytest.mark.parametrize("kind", list(InputSet))
def test_every_index_is_inside_what_it_indexes(kind: InputSet) -> None:
    dims = {"T": 9, "B": 3, "M": 4, "NB": 13, "R": 2}
    for definition in LLAMA.values():
        inputs = make_inputs(definition, dims, kind, 1)
        for name, limits in index_limits(definition).items():
            assert inputs[name].min() >= 0
            assert inputs[name].max() < min(bind(n, dims) for n in limits)


def test_slots_are_distinct() -> None:
    dims = {"T": 30, "NB": 4}
    placed = [(d, t.buffer_of(x)) for d in WRITING for x in t.topological(d.place.indices) if is_load(x)]
    slots = [make_inputs(d, dims, InputSet.UNIT, 0)[name] for d, name in placed]
    assert len(slots) >= 2
    assert all(len(set(s.tolist())) == 30 for s in slots)


def is_load(x: t.Term) -> bool:
    return x.kind is t.Kind.LOAD


def test_what_is_written_starts_as_zeros() -> None:
    inputs = make_inputs(definition_of("product"), {"T": 3}, InputSet.LARGE, 0)
    assert not inputs["out"].any()


def test_values_are_in_storage_form() -> None:
    inputs = make_inputs(definition_of("product_bf16"), {"T": 3}, InputSet.UNIT, 0)
    assert inputs["b1"].dtype == np.uint16
    assert 0.8 < float(bf16_to_f32(inputs["b1"]).std()) < 1.2
    assert {b.dtype for b in definition_of("product_bf16").buffers.values()} == {DType.F32, DType.BF16}


def values(kind: InputSet) -> np.ndarray:
    return make_inputs(definition_of("softmax"), DIMS, kind, 0)["b0"]


def test_sets_look_as_they_say() -> None:
    kinds = (InputSet.UNIT, InputSet.LARGE, InputSet.OFFSET, InputSet.RISING)
    unit, large, offset, rising = map(values, kinds)
    assert abs(unit.mean()) < 0.1
    assert large.std() > 7 * unit.std()
    assert offset.mean() > 25 * offset.std()
    assert (np.diff(rising.mean(0).reshape(9, 10).mean(1)) > 0).all()


def test_equal_seeds_give_equal_inputs_and_other_seeds_others() -> None:
    definition = definition_of("causal_attention")
    one, same, other = (make_inputs(definition, DIMS, InputSet.UNIT, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert not np.array_equal(one["b0"], other["b0"])


PAGED = {"T": 64, "B": 4, "M": 3, "NB": 40, "S": 90}


def test_masked_inputs_leave_little_of_what_masks_cut() -> None:
    definition = definition_of("paged_attention")
    unit, masked = (make_inputs(definition, PAGED, kind, 0) for kind in (InputSet.UNIT, InputSet.MASKED))
    zeros = {n: ((masked[n] == 0).mean(), (a == 0).mean()) for n, a in unit.items() if a.dtype == np.int32}
    assert any(now > 0.3 > before for now, before in zeros.values())


def test_the_masked_set_is_for_what_has_masks() -> None:
    assert InputSet.MASKED in input_sets(definition_of("paged_attention"))
    assert InputSet.MASKED not in input_sets(definition_of("softmax"))


@pytest.mark.parametrize("name", ["paged_attention", "causal_attention", "softmax"])
def test_poison_lies_only_where_nothing_is_read(name: str) -> None:
    d = definition_of(name)
    inputs = make_inputs(d, PAGED, InputSet.POISONED, 0)
    assert np.isfinite(interpret(d.term, d.axes, d.extents, inputs, PAGED)).all()
    assert np.isnan(inputs[d.place.buffer]).all()
    others = {n: a for n, a in inputs.items() if n != d.place.buffer and a.dtype == np.float32}
    assert any(np.isnan(a).any() for a in others.values()) == (name == "paged_attention")


def test_weights_are_made_once_where_they_are_kept() -> None:
    made: dict[str, np.ndarray] = {}
    d = definition_of("product_bf16")
    one, other = (make_inputs(d, {"T": t}, InputSet.UNIT, t, made) for t in (3, 4))
    assert made
    assert all(one[n] is other[n] for n in made)
