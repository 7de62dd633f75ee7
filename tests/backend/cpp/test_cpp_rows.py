"""A row's bits: the same alone and among others, for every candidate of a recipe and any number of threads,
and untouched by what lies beyond its own length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pytest

from compiler.ir import DType, round_to_bf16
from compiler.lower.canonical import Canonical
from compiler.search.inputs import InputSet, make_inputs
from tests.support.compiled_programs import Built, Library
from tests.support.programs import BLOCK, T, sizes_of, written_cache

Array = npt.NDArray[Any]
Setting: TypeAlias = tuple[Built, dict[str, int], dict[str, Array]]
ROWS, COLUMNS = 51, 150
NAMES = (
    "product",
    "product_bf16",
    "rms_normed_product",
    "swiglu",
    "weighted_mean",
    "grouped_attention",
    "paged_attention_bf16",
    "layer_normed",
)


def of_rows(definition: Canonical, inputs: Mapping[str, Array], rows: slice) -> dict[str, Array]:
    """The inputs of some rows: what has an axis T is cut, the rest is as it was."""
    cut = {
        name: inputs[name][rows]
        for name, b in definition.buffers.items()
        if b.shape[:1] == (T,) and name in inputs
    }
    return {**inputs, **cut}


def bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(np.uint8)


def run_rows(
    built: Built,
    name: str,
    inputs: Mapping[str, Array],
    dims: Mapping[str, int],
    rows: slice,
    threads: int = 1,
) -> Array:
    """The result for some rows alone."""
    some = of_rows(built.definition, inputs, rows)
    count = len(range(ROWS)[rows])
    return bits(built.kernels.run(name, some, {**dims, "T": count}, threads))


@pytest.fixture
def setting(library: Library, request: pytest.FixtureRequest) -> Setting:
    """The last definition of a program with inputs for all rows."""
    built = library.program(request.param)[-1]
    dims = dict(sizes_of(request.param, ROWS, COLUMNS))
    return built, dims, make_inputs(built.definition, dims, InputSet.UNIT, 5)


ALL = slice(0, ROWS)


@pytest.mark.parametrize("setting", NAMES, indirect=True)
def test_candidates_of_one_recipe_agree_to_the_bit(setting: Setting) -> None:
    built, dims, inputs = setting
    groups = [
        {run_rows(built, c.name, inputs, dims, ALL).tobytes() for c in recipe} for recipe in built.by_recipe()
    ]
    assert [len(g) for g in groups] == [1] * len(groups)
    assert max(len(recipe) for recipe in built.by_recipe()) > 1


@pytest.mark.parametrize("setting", NAMES, indirect=True)
@pytest.mark.parametrize("rows", [slice(0, 1), slice(50, 51), slice(7, 15), slice(20, 45)], ids=str)
def test_rows_alone_have_the_bits_they_have_among_others(setting: Setting, rows: slice) -> None:
    built, dims, inputs = setting
    for c in built.candidates:
        together = run_rows(built, c.name, inputs, dims, ALL)
        assert np.array_equal(run_rows(built, c.name, inputs, dims, rows), together[rows])


@pytest.mark.parametrize("setting", NAMES, indirect=True)
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_the_number_of_threads_changes_no_bit(setting: Setting, threads: int) -> None:
    built, dims, inputs = setting
    for c in built.candidates:
        one = run_rows(built, c.name, inputs, dims, ALL)
        assert np.array_equal(run_rows(built, c.name, inputs, dims, ALL, threads), one)


# Paged caches


PAGED = ("paged_attention", "paged_attention_bf16")


def paged(library: Library, name: str) -> tuple[Built, dict[str, int], dict[str, Array], dict[str, str]]:
    """A paged program with inputs, and which canonical buffer is which by its rank and dtype."""
    (built,) = library.program(name)
    dims = dict(sizes_of(name, 9, 150))
    inputs = make_inputs(built.definition, dims, InputSet.UNIT, 2)
    shapes = {b: tuple(map(str, info.shape)) for b, info in built.definition.buffers.items() if b != "out"}
    names = {"tables": next(b for b, s in shapes.items() if s == ("B", "M"))}
    caches = [b for b, s in shapes.items() if s[0] == "NB"]
    names |= {"keys": next(b for b in caches if shapes[b][-1] == str(BLOCK))}
    names |= {"values": next(b for b in caches if b != names["keys"])}
    whole = [b for b, s in shapes.items() if s == ("T",)]
    names |= {"positions": max(whole, key=lambda b: int(inputs[b].max()))}
    names |= {"sequence": next(b for b in whole if b != names["positions"])}
    blocks = np.random.default_rng(0).permutation(dims["NB"] - 1)[: dims["B"] * dims["M"]] + 1
    inputs[names["tables"]] = blocks.reshape(dims["B"], dims["M"]).astype(np.int32)
    return built, dims, inputs, names


def poisoned(inputs: dict[str, Array], names: Mapping[str, str], last: int) -> dict[str, Array]:
    """NaN in every slot past position `last`, and in every block that no table names."""
    tables = inputs[names["tables"]]
    keys, values = (np.array(inputs[names[n]]) for n in ("keys", "values"))
    nan = 0x7FC0 if keys.dtype == np.uint16 else np.nan
    unused = np.setdiff1d(np.arange(keys.shape[0]), tables)
    keys[unused], values[unused] = nan, nan
    for number in range(tables.shape[1]):
        past = max(0, min(BLOCK, last + 1 - number * BLOCK))
        keys[tables[:, number], ..., past:] = nan
        values[tables[:, number], :, past:] = nan
    return {**inputs, names["keys"]: keys, names["values"]: values}


@pytest.mark.parametrize("name", PAGED)
@pytest.mark.parametrize("last", [0, 14, 15, 16, 63, 64, 100, 143])
def test_what_lies_past_a_length_does_not_leak(library: Library, name: str, last: int) -> None:
    built, dims, inputs, names = paged(library, name)
    inputs[names["positions"]] = np.minimum(inputs[names["positions"]], last)
    spoiled = poisoned(inputs, names, last)
    for c in built.candidates:
        found = built.kernels.run(c.name, spoiled, dims)
        assert not np.isnan(found).any()
        assert np.array_equal(bits(found), bits(built.kernels.run(c.name, inputs, dims)))


@pytest.mark.parametrize("name", PAGED)
def test_a_wider_table_changes_no_bit(library: Library, name: str) -> None:
    built, dims, inputs, names = paged(library, name)
    wider = np.pad(inputs[names["tables"]], ((0, 0), (0, 3)))
    wide = {**inputs, names["tables"]: wider}
    for c in built.candidates:
        found = built.kernels.run(c.name, wide, {**dims, "M": dims["M"] + 3})
        assert np.array_equal(bits(found), bits(built.kernels.run(c.name, inputs, dims)))


@pytest.mark.parametrize("name", PAGED)
def test_where_blocks_lie_changes_no_bit(library: Library, name: str) -> None:
    built, dims, inputs, names = paged(library, name)
    order = np.random.default_rng(1).permutation(dims["NB"])
    moved = {**inputs, names["tables"]: np.argsort(order)[inputs[names["tables"]]].astype(np.int32)}
    moved |= {names[n]: inputs[names[n]][order] for n in ("keys", "values")}
    for c in built.candidates:
        found = built.kernels.run(c.name, moved, dims)
        assert np.array_equal(bits(found), bits(built.kernels.run(c.name, inputs, dims)))


# Writes to a cache


@pytest.mark.parametrize("dtype", [DType.F32, DType.BF16])
def test_rows_go_to_their_slots_and_padding_nowhere(library: Library, dtype: DType) -> None:
    (built,) = library.graph(f"written {dtype}", written_cache(dtype))
    dims = {"T": 7, "NB": 4}
    inputs = make_inputs(built.definition, dims, InputSet.UNIT, 0)
    slots = np.array([17, -1, 63, 64, 0, 1000, -64], np.int32)
    (name,) = [b for b, info in built.definition.buffers.items() if info.dtype is DType.I32]
    inputs[name] = slots
    numbers = np.arange(4 * 2 * 16 * 24, dtype=np.float32).reshape(4, 2, 16, 24)
    before: Array = round_to_bf16(numbers) if dtype is DType.BF16 else numbers
    for c in built.candidates:
        after = built.kernels.run(c.name, inputs, dims, threads=2, before=before)
        changed = np.argwhere((after != before).any(axis=(1, 3)))
        assert sorted((changed[:, 0] * BLOCK + changed[:, 1]).tolist()) == [0, 17, 63]
