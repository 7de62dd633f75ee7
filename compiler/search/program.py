"""The whole-program search: a graph becomes definitions, each is tuned once, and all are arranged in
stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.ir.graph import Graph, Node
from compiler.lower.canonical import Instance
from compiler.lower.definitions import Definition
from compiler.lower.errors import FormationError, LoweringError
from compiler.lower.precision import narrow_operands
from compiler.search.arrange import Arrangement, arrange, cut_classes
from compiler.search.bench import Bench
from compiler.search.candidates import Bucket, Candidate
from compiler.search.cuts import starting_cuts
from compiler.search.tune import NoCandidate, Tuned
from compiler.search.tuner import Move, Stopped, Tuner, kernels_source, relative

__all__ = ["EFFORTS", "Effort", "SearchedProgram", "Setting", "Stopped", "kernels_source", "search"]

Build = Callable[[str], Path]
"""Compiles a translation unit to a shared object."""
Report = Callable[[float, str], None]
"""Takes a fraction of the search and a sentence."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a budget buys: candidates built a bucket, timing repeats (0: the model decides), seeded forms,
    and changes of the cuts that are measured.
    """

    shortlist: int
    repeats: int
    seeds: int
    flips: int


_WORTH_TRYING = 1.1
"""A flip predicted to be slower than this is not measured."""
_WORTH_KEEPING = 0.985
"""A flip must beat the best by more than the clock's noise."""

EFFORTS: Mapping[str, Effort] = {
    "none": Effort(shortlist=1, repeats=0, seeds=0, flips=0),
    "quick": Effort(shortlist=3, repeats=3, seeds=2, flips=2),
    "full": Effort(shortlist=8, repeats=9, seeds=8, flips=16),
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

    arrangement: Arrangement
    tuned: Mapping[str, Tuned]
    moves: tuple[Move, ...]

    @property
    def graph(self) -> Graph:
        return self.arrangement.graph

    @property
    def plan(self) -> tuple[tuple[Definition, ...], ...]:
        return self.arrangement.plan

    @property
    def instances(self) -> Mapping[str, Instance]:
        return self.arrangement.instances

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
    best = arrange(graph, starting_cuts(graph))
    distinct = best.distinct()
    report(0.02, f"{len(best.instances)} definitions, {len(distinct)} distinct")
    with Bench(setting.work_dir, setting.threads) as bench:
        tuner = Tuner(setting, bench)
        tuner.tune(distinct, lambda f, m: report(0.02 + 0.78 * f, m))
        best, moves = _improve(best, tuner, setting, lambda f, m: report(0.8 + 0.2 * f, m))
    tuned = {key: tuner.tuned[key] for key in best.distinct()}
    return SearchedProgram(best, tuned, moves)


def _improve(
    best: Arrangement, tuner: Tuner, setting: Setting, report: Report
) -> tuple[Arrangement, tuple[Move, ...]]:
    """Flip classes of cuts, most promising first, and keep a flip that measures faster."""
    moves: list[Move] = []
    if not setting.effort.flips:
        return best, ()
    base = tuner.measured(best)
    promising = sorted(_proposals(best, tuner), key=lambda p: (p.predicted, p.name))
    for number, proposal in enumerate(promising[: setting.effort.flips]):
        report(number / setting.effort.flips, f"trying {proposal.name}")
        candidate = arrange(best.graph, best.flipped(proposal.nodes))
        try:
            tuner.tune(candidate.distinct(), lambda f, m: None)
        except (NoCandidate, FormationError) as error:
            moves.append(Move(proposal.name, proposal.predicted, None, False, str(error)[:200]))
            continue
        ratio = relative(tuner.measured(candidate), base)
        is_kept = ratio < _WORTH_KEEPING * relative(tuner.measured(best), base)
        moves.append(Move(proposal.name, proposal.predicted, ratio, is_kept))
        if is_kept:
            best = candidate
    return best, tuple(moves)


@dataclass(frozen=True, slots=True)
class _Proposal:
    name: str
    nodes: tuple[Node, ...]
    predicted: float


def _proposals(best: Arrangement, tuner: Tuner) -> Iterator[_Proposal]:
    """Every class flip that can be formed, with its predicted time relative to that of `best`."""
    base = tuner.predicted(best)
    for name, nodes in cut_classes(best.graph).items():
        try:
            other = arrange(best.graph, best.flipped(nodes))
            ratio = relative(tuner.predicted(other), base)
        except (FormationError, LoweringError):
            continue
        if ratio < _WORTH_TRYING:
            yield _Proposal(name, nodes, ratio)
