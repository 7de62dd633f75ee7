"""Printed Triton kernels against the meaning of their definitions, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.checkpoint import config_from_hf
from compiler.ir import Graph
from compiler.lower.precision import narrow_operands
from compiler.lower.terms import Kind, buffer_of, topological
from compiler.search.arrange import arrange
from compiler.search.cuts import starting_cuts
from compiler.zoo import StepLimits
from compiler.zoo.llama import build_llama
from tests.support.program_values import values_of
from tests.support.programs import PROGRAMS, graph_of, sizes_of
from tests.support.tiny_checkpoints import TINY, tiny_config
from tests.support.triton_runs import Case, Outcomes, chained_cases, gated_cases, run_cases

SPEC = replace(TINY["gqa"], hidden=40, heads=5, kv_heads=1, head_dim=8, intermediate=72)
SIZES = ({"T": 19, "R": 3, "B": 2, "M": 3, "NB": 9}, {"T": 1, "R": 1, "B": 1, "M": 1, "NB": 2})


def tiny_llama(dtype: str) -> Graph:
    config = config_from_hf(tiny_config(SPEC))
    return build_llama(config, dtype=dtype, max_context=64, limits=StepLimits(64, 4, 64))


def llama_cases(graph: Graph) -> list[Case]:
    """Every distinct kernel of a graph at every one of `SIZES`."""
    distinct = arrange(graph, starting_cuts(graph)).distinct()
    return [case for d in distinct.values() for sizes in SIZES for case in gated_cases(d, sizes)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_every_kernel_of_a_tiny_llama_means_what_its_definition_means(dtype):
    graph = narrow_operands(tiny_llama(dtype))
    cases = llama_cases(graph)
    assert len({case.label.split()[0] for case in cases}) >= 14
    assert run_cases(cases).over(1e-5) == []


def program_cases(rows: int, columns: int) -> list[Case]:
    found: list[Case] = []
    for name in PROGRAMS:
        sizes = sizes_of(name, rows, columns)
        graph = graph_of(name)
        found += chained_cases(name, graph, values_of(graph, sizes), sizes)
    return found


@pytest.fixture(scope="module")
def every_program() -> Outcomes:
    """Lengths that fill no tile."""
    return run_cases(program_cases(33, 37))


def test_every_program_of_the_library_means_what_it_says(every_program):
    assert len(every_program.found) >= len(PROGRAMS)
    assert every_program.over(1e-5) == []


def poisoned(name: str, rows: int, columns: int, last: int) -> list[Case]:
    """Attention whose rows see positions up to `last`, over keys and values that are NaN beyond it."""
    graph, sizes = graph_of(name), sizes_of(name, rows, columns)
    values = values_of(graph, sizes)
    values["positions"] = np.minimum(values["positions"], last)
    clean = list(chained_cases(name, graph, values, sizes))
    spoiled = {**values, **{k: _spoiled(k, v, values, last) for k, v in values.items()}}
    cases = list(chained_cases(f"poisoned {name}", graph, spoiled, sizes))
    return [replace(case, expected=other.expected) for case, other in zip(cases, clean, strict=True)]


def _spoiled(name: str, array: np.ndarray, values: dict[str, np.ndarray], last: int) -> np.ndarray:
    """Keys and values with NaN in every position past `last`, and in every block that no table names."""
    out = array.copy()
    nan = np.uint16(0x7FC0) if array.dtype == np.uint16 else np.float32("nan")
    if name in ("k", "v"):
        out[(Ellipsis, slice(last + 1, None)) if name == "k" else (slice(None), slice(last + 1, None))] = nan
    if name in ("k_cache", "v_cache"):
        used = values["block_tables"]
        out[~np.isin(np.arange(len(out)), used)] = nan
        for block in range(used.shape[1]):
            beyond = slice(max(last + 1 - 16 * block, 0), None)
            out[
                (used[:, block], ..., beyond) if name == "k_cache" else (used[:, block], slice(None), beyond)
            ] = nan
    return out


@pytest.mark.parametrize("last", [0, 17])
def test_rubbish_past_every_length_never_meets_a_number(last):
    names = ("causal_attention", "grouped_attention", "paged_attention", "paged_attention_bf16")
    outcomes = run_cases([case for name in names for case in poisoned(name, 5, 48, last)])
    assert outcomes.over(1e-5) == []


def test_attention_under_several_schedules_at_lengths_around_a_tile():
    graph = graph_of("causal_attention")
    definition = next(iter(arrange(graph, starting_cuts(graph)).distinct().values()))
    lengths = [{"T": n, "S": n} for n in (1, 15, 17, 33)]
    cases = [case for sizes in lengths for case in gated_cases(definition, sizes, schedules=5)]
    assert len(cases) == 20
    assert run_cases(cases).over(1e-5) == []


def scatters_with(slots: np.ndarray) -> list[Case]:
    """The kernels that write keys and values, told to write at `slots`; nothing of that may show."""
    graph = tiny_llama("f32")
    found = []
    for d in arrange(graph, starting_cuts(graph)).distinct().values():
        if d.place.limits:
            (case,) = gated_cases(d, {"T": len(slots), "R": 1, "B": 1, "M": 1, "NB": 2})
            (name,) = {buffer_of(x) for x in topological(d.place.indices) if x.kind is Kind.LOAD}
            run = replace(case.run, buffers={**case.run.buffers, name: slots})
            found.append(replace(case, run=run, places=(), is_written=True, expected=np.float64(0.0)))
    return found


@pytest.mark.parametrize("first", [-5, -40, 32])
def test_slots_outside_the_pool_drop_the_write(first):
    cases = scatters_with(np.arange(first, first + 5, dtype=np.int32))
    assert len(cases) == 2
    assert [np.abs(o.written).max() for o in run_cases(cases).found] == [0.0, 0.0]
