"""The whole-program search: a graph becomes definitions, each is tuned once, and all are arranged in
stages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from compiler.codegen.cpp import print_kernel
from compiler.errors import CompilerError
from compiler.ir.dim import symbols
from compiler.ir.graph import Graph
from compiler.lower.canonical import Buffer, Canonical, Instance, Role, canonicalize
from compiler.lower.definitions import Definition, define
from compiler.lower.index_terms import input_buffer, weight_buffer
from compiler.lower.precision import narrow_operands
from compiler.lower.stages import stages
from compiler.search.bench import Bench
from compiler.search.candidates import Bucket, Candidate, candidates, shortlist
from compiler.search.cuts import starting_cuts
from compiler.search.tune import Plan, Tuned, tune

HEADER = '#include "kernels.h"\n#include "tiles.h"\n'

Build = Callable[[str], Path]
"""Compiles a translation unit to a shared object."""
Report = Callable[[float, str], None]
"""Takes a fraction of the search and a sentence."""


class Stopped(CompilerError):
    """The caller asked to stop."""

    code = "cancelled"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a budget buys. `shortlist` candidates a bucket are built; `repeats` of 0 decides by the
    model alone.
    """

    shortlist: int
    repeats: int
    seeds: int


EFFORTS: Mapping[str, Effort] = {
    "none": Effort(shortlist=1, repeats=0, seeds=0),
    "quick": Effort(shortlist=3, repeats=3, seeds=2),
    "full": Effort(shortlist=8, repeats=9, seeds=8),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """What a search runs in."""

    dims: tuple[str, ...]
    buckets: tuple[Bucket, ...]
    threads: int
    effort: Effort
    seed: int
    work_dir: Path
    build: Build
    should_stop: Callable[[], bool]
    is_busy: Callable[[], bool]
    has_tiles: bool = False
    """The level multiplies bf16 on matrix tiles: what meets a bf16 weight is rounded to bf16."""


@dataclass(frozen=True, slots=True)
class SearchedProgram:
    """Definitions in stages, the canonical form of each, and what was chosen for it."""

    graph: Graph
    plan: tuple[tuple[Definition, ...], ...]
    instances: Mapping[str, Instance]
    tuned: Mapping[str, Tuned]
    buffers: Mapping[str, Buffer]

    def candidate(self, definition: Definition, bucket: Bucket) -> Candidate:
        return self.tuned[self.instances[definition.name].canonical.key].chosen[bucket.name]


def search(graph: Graph, setting: Setting, report: Report) -> SearchedProgram:
    """Find a program for `graph`.

    Raises:
        Stopped: `setting.should_stop` said so.
        CompilerError: the graph cannot be lowered, or the toolchain failed.
    """
    report(0.0, "lowering")
    if setting.has_tiles:
        graph = narrow_operands(graph)
    definitions = define(graph, starting_cuts(graph))
    buffers = describe_buffers(graph, definitions)
    instances = {d.name: canonicalize(d, buffers) for d in definitions}
    distinct = {i.canonical.key: i.canonical for i in instances.values()}
    report(0.05, f"{len(definitions)} definitions, {len(distinct)} distinct")
    found = _propose(distinct, setting)
    objects = _build_all(found, setting, report)
    tuned = _tune_all(distinct, found, objects, setting, report)
    return SearchedProgram(graph, stages(definitions), instances, tuned, buffers)


def describe_buffers(graph: Graph, definitions: Sequence[Definition]) -> dict[str, Buffer]:
    """Every buffer of the program by name: inputs, weights and values."""
    found = {input_buffer(n): Buffer(n.shape, n.dtype, Role.INPUT) for n in graph.inputs.values()}
    found |= {weight_buffer(n): Buffer(n.shape, n.dtype, Role.WEIGHT) for n in graph.weights.values()}
    return found | {d.name: Buffer(d.shape, d.dtype, Role.VALUE) for d in definitions}


def _propose(distinct: Mapping[str, Canonical], setting: Setting) -> dict[str, tuple[Candidate, ...]]:
    effort = setting.effort
    proposed = {}
    for key, definition in distinct.items():
        every = candidates(
            definition, setting.buckets, setting.threads, effort.seeds, has_tiles=setting.has_tiles
        )
        proposed[key] = shortlist(every, setting.buckets, effort.shortlist)
    return proposed


def _build_all(found: Mapping[str, Sequence[Candidate]], setting: Setting, report: Report) -> dict[str, Path]:
    """Compile each definition's candidates into one shared object; compilers run side by side."""
    done = 0
    objects: dict[str, Path] = {}
    with ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1)) as pool:
        sources = {key: kernels_source(some, setting.dims) for key, some in found.items()}
        futures = {key: pool.submit(setting.build, source) for key, source in sources.items()}
        for key, future in futures.items():
            if setting.should_stop():
                pool.shutdown(wait=False, cancel_futures=True)
                raise Stopped("the search was stopped")
            objects[key] = future.result()
            done += 1
            report(0.05 + 0.45 * done / len(found), f"built {len(found[key])} kernels of {key}")
    return objects


def kernels_source(found: Sequence[Candidate], dims: Sequence[str]) -> str:
    """One translation unit with the kernels of these candidates."""
    return HEADER + "\n".join(print_kernel(c.name, c.kernel, dims) for c in found)


def _tune_all(
    distinct: Mapping[str, Canonical],
    found: Mapping[str, Sequence[Candidate]],
    objects: Mapping[str, Path],
    setting: Setting,
    report: Report,
) -> dict[str, Tuned]:
    tuned: dict[str, Tuned] = {}
    with Bench(setting.work_dir, setting.threads) as bench:
        for number, (key, definition) in enumerate(distinct.items(), start=1):
            if setting.should_stop():
                raise Stopped("the search was stopped")
            plan = Plan(
                gate_sizes(definition),
                setting.dims,
                setting.effort.repeats,
                setting.seed,
                lambda: not setting.is_busy(),
            )
            tuned[key] = tune(definition, found[key], setting.buckets, objects[key], bench, plan)
            report(0.5 + 0.5 * number / len(distinct), _sentence(tuned[key]))
    return tuned


def gate_sizes(definition: Canonical) -> tuple[Mapping[str, int], ...]:
    """Sizes at which candidates are gated: an odd one inside a tile, the smallest, and one past a tile's
    edge.
    """
    known = {s.name: s for b in definition.buffers.values() for n in b.shape for s in symbols(n)}
    wanted = (
        {"T": 5, "R": 3, "B": 2, "M": 3, "NB": 9},
        {"T": 1, "R": 1, "B": 1, "M": 1, "NB": 3},
        {"T": 51, "R": 9, "B": 3, "M": 4, "NB": 14},
    )

    def clamped(sizes: Mapping[str, int]) -> dict[str, int]:
        return {n: min(max(sizes.get(n, 7), s.low), s.high) for n, s in known.items()}

    return tuple({tuple(c.items()): c for c in map(clamped, wanted)}.values())


def _sentence(tuned: Tuned) -> str:
    accepted = sum(not r.refusal for r in tuned.records)
    return f"{tuned.definition.key}: {accepted} of {len(tuned.records)} candidates passed the gate"
