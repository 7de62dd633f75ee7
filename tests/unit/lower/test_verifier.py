"""The verifier of tile programs refuses every broken one, and says what is wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from compiler.ir import DType
from compiler.lower import terms as t
from compiler.lower.errors import FormationError, TileError
from compiler.lower.formation import form
from compiler.lower.terms import Kind
from compiler.lower.tiles import Compute, Fill, Kernel, Loop, Param, Reduce, Store, Tile
from compiler.lower.verify import verify_kernel
from compiler.search.candidates import forms
from compiler.search.space import schedules
from tests.support.chained import instances
from tests.support.programs import graph_of
from tests.support.tile_mutants import mutants

NAMES = ("grouped_attention", "paged_attention_bf16", "swiglu", "rms_normed_product", "layer_normed")
KINDS = {
    "dropped definition",
    "unrolled loop",
    "loop in itself",
    "operands exchanged",
    "result transposed",
    "reduction left inside",
    "unknown tile",
    "unknown buffer",
    "axis without an index",
    "tile axes reversed",
    "place without an index",
    "store to an input",
    "address without an index",
}


@cache
def kernels_of(name: str) -> list[Kernel]:
    """One kernel for each schedule of a program's chosen form."""
    made = []
    for instance in instances(graph_of(name)):
        definition = instance.canonical
        variant = definition.with_term(forms(definition, 0)[0])
        for schedule in schedules(variant):
            try:
                made.append(form(variant, schedule))
            except FormationError:
                continue
    return made


def is_refused(kernel: Kernel) -> bool:
    try:
        verify_kernel(kernel)
    except TileError:
        return True
    return False


@pytest.mark.parametrize("name", NAMES)
def test_what_is_formed_is_accepted_and_every_mutant_of_it_refused(name: str) -> None:
    kernels = kernels_of(name)
    assert not any(is_refused(k) for k in kernels)
    broken = [(kind, mutant) for k in kernels for kind, mutant in mutants(k)]
    assert broken
    assert [(kind, m) for kind, m in broken if not is_refused(m)][:1] == []


def test_every_kind_of_mutant_is_made() -> None:
    assert {kind for name in NAMES for k in kernels_of(name) for kind, _ in mutants(k)} == KINDS


# One small program by hand: out[i] = x[i] + 1, in tiles of 4


X = t.load("b0", [t.idx("o0")], DType.F32)
TILE = Tile("t1", ("o0",), DType.F32)


def by_hand(extent: int = 8, *, is_looped: bool = True) -> Kernel:
    body = (
        Compute(TILE, X),
        Store("out", (t.idx("o0"),), (), ("o0",), t.tile("t1", ("o0",), DType.F32), DType.F32),
    )
    params = (
        Param("b0", (extent,), DType.F32),
        Param("out", (extent,), DType.F32, is_written=True),
    )
    nest = (Loop("o0", 4, body),) if is_looped else body
    return Kernel(params, {"o0": 4}, {"o0": extent}, nest, int(is_looped), "chunk")


def test_a_program_by_hand_is_accepted() -> None:
    assert not is_refused(by_hand())
    assert not is_refused(by_hand(extent=4, is_looped=False))


def test_an_axis_longer_than_its_tile_needs_a_loop() -> None:
    with pytest.raises(TileError, match="no loop"):
        verify_kernel(by_hand(is_looped=False))


def test_loops_that_threads_share_must_be_there() -> None:
    with pytest.raises(TileError, match="shared among threads"):
        verify_kernel(replace(by_hand(), parallel=2))


def test_a_tile_of_a_loop_is_gone_after_it() -> None:
    kernel = by_hand()
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    inner = Loop("o1", 1, (loop.body[0],))
    moved = replace(loop, body=(inner, loop.body[1]))
    with pytest.raises(TileError, match="not defined here"):
        verify_kernel(replace(kernel, body=(moved,), blocks={"o0": 4, "o1": 1}, extents={"o0": 8, "o1": 2}))


def test_a_tile_with_more_axes_than_its_reader_is_refused() -> None:
    kernel = by_hand()
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    store = loop.body[1]
    assert isinstance(store, Store)
    narrow = replace(loop, body=(loop.body[0], replace(store, axes=())))
    with pytest.raises(TileError, match="its reader only"):
        verify_kernel(replace(kernel, body=(narrow,)))


def test_adding_to_a_tile_that_was_never_filled_is_refused() -> None:
    kernel = by_hand()
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    total = Tile("acc", (), DType.F32)
    adding = Reduce(total, Kind.SUM, "o0", X, accumulate=True)
    assert is_refused(replace(kernel, body=(replace(loop, body=(adding, *loop.body)),)))
    filled = (Fill(total, 0.0), replace(loop, body=(adding, *loop.body)))
    assert not is_refused(replace(kernel, body=filled))
