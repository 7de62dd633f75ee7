"""Compiled kernels against what their definitions mean: programs, forms, schedules, sizes and input sets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from compiler.lower.canonical import Canonical
from compiler.search.gate import Trial, judge, trials
from tests.support.compiled_programs import (
    Built,
    Library,
    definitions_narrowed,
    definitions_of,
    may_overflow,
)
from tests.support.programs import PROGRAMS, graph_of, sizes_of

SIZES = ((5, 150), (1, 1), (1, 15), (2, 16), (1, 17), (7, 63), (8, 64), (9, 65), (23, 37), (25, 129))
"""Rows and columns: one, a tile's length and its neighbours, primes. The first is run on every input set."""
ROWS = ((49, 1), (1, 1), (7, 1), (8, 1), (9, 1), (23, 1), (24, 1), (25, 1), (48, 1), (95, 1), (97, 1))
PRODUCTS = {
    "product",
    "product_bf16",
    "rms_normed",
    "rms_normed_product",
    "swiglu",
    "gated_mlp",
    "layer_normed",
}
NARROW = ("rms_normed_product", "gated_mlp")
EVERYWHERE = (
    "product",
    "product_bf16",
    "rms_normed_product",
    "layer_normed",
    "weighted_mean",
    "grouped_attention",
    "paged_attention_bf16",
)


def written(name: str) -> list[Canonical]:
    return definitions_of(graph_of(name))


@cache
def trials_of(name: str, definitions: Callable[[str], list[Canonical]]) -> list[list[Trial]]:
    """The gate's trials of each definition of a program."""
    sizes = tuple(dict(sizes_of(name, *s)) for s in (ROWS if name in PRODUCTS else SIZES))
    return [list(trials(d, sizes, seed=1)) for d in definitions(name)]


def refusals(programs: tuple[Built, ...], found: list[list[Trial]], threads: int = 2) -> list[str]:
    """What the gate says of every candidate on every trial, where it says no."""
    runs = [
        (c, judge(trial, built.kernels.run(c.name, trial.inputs, trial.dims, threads)))
        for built, some in zip(programs, found, strict=True)
        for c in built.candidates
        if not may_overflow(c)
        for trial in some
    ]
    assert len(runs) >= len(SIZES)
    return [f"{c.schedule.describe()}: {verdict.reason}" for c, verdict in runs if not verdict.is_accepted]


@pytest.mark.pitfall("C15", "C17", "C32")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_candidate_of_every_program_computes_it(library: Library, name: str) -> None:
    assert refusals(library.program(name), trials_of(name, written)) == []


@pytest.mark.parametrize("name", EVERYWHERE)
def test_lower_levels_compute_the_programs(other_levels: Library, name: str) -> None:
    assert refusals(other_levels.program(name), trials_of(name, written), threads=1) == []


@pytest.mark.parametrize("name", NARROW)
def test_matrix_tiles_compute_what_rounded_operands_give(with_tiles: Library, name: str) -> None:
    programs = with_tiles.narrowed(name)
    assert "packed_amx_64" in {p.layout for b in programs for c in b.candidates for p in c.kernel.params}
    assert refusals(programs, trials_of(name, definitions_narrowed)) == []


def test_a_candidate_that_overflows_is_refused(library: Library) -> None:
    (built,) = library.program("inverted")
    (found,) = trials_of("inverted", written)
    overflowing = [c for c in built.candidates if may_overflow(c)]
    verdicts = [
        all(judge(t, built.kernels.run(c.name, t.inputs, t.dims)).is_accepted for t in found)
        for c in overflowing
    ]
    assert verdicts
    assert not any(verdicts)


@pytest.mark.parametrize("threads", [1, 3, 7, 64])
@pytest.mark.parametrize("name", ["grouped_attention", "swiglu"])
def test_every_element_is_written_however_many_threads_share_the_work(
    library: Library, name: str, threads: int
) -> None:
    (built,) = library.program(name)
    trial = trials_of(name, written)[0][0]
    results = [built.kernels.run(c.name, trial.inputs, trial.dims, threads) for c in built.candidates]
    assert not any(np.isnan(x).any() for x in results)
