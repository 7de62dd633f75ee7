"""The whole-program search: a graph becomes definitions, each is tuned once, and all are arranged in
stages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

from compiler.errors import CompilerError
from compiler.ir.graph import Graph
from compiler.ir.text import print_graph
from compiler.lower.canonical import Instance
from compiler.lower.definitions import Definition
from compiler.lower.errors import LoweringError
from compiler.lower.precision import narrow_operands
from compiler.measure.bench import Bench
from compiler.measure.builds import kernels_source
from compiler.measure.ground import Stopped
from compiler.search.arrange import Arrangement, arrange
from compiler.search.candidates import Bucket, Candidate
from compiler.search.cuts import starting_cuts
from compiler.search.setting import EFFORTS, Effort, Report, Setting, effort_for
from compiler.search.stitch import Move, stitch
from compiler.search.tune import Tuned
from compiler.search.tuner import Tuner

__all__ = [
    "EFFORTS", "Effort", "Move", "SearchedProgram", "Setting", "Stopped", "effort_for",
    "kernels_source", "search",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class SearchedProgram:
    """Definitions in stages, the canonical form of each, and what was chosen for it.

    `seconds` the search took by its journal's clock, and `first_s` until its first valid program. `recalled`
    is true where all of it was found in the cache.
    """

    arrangement: Arrangement
    tuned: Mapping[str, Tuned]
    moves: tuple[Move, ...]
    seconds: float = 0.0
    first_s: float = 0.0
    is_recalled: bool = False

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
    """Find a program for `graph`, better ones while the budget lasts, and the best of them at its end.

    Raises:
        Stopped: `setting.should_stop` said so.
        CompilerError: the graph cannot be lowered, or the toolchain failed.
    """
    report(0.0, "lowering")
    Thread(target=_warm_up, args=(setting,), name="toolchain", daemon=True).start()
    if setting.has_tiles:
        graph = narrow_operands(graph)
    known = _known_cuts(graph, setting)
    best = arrange(graph, starting_cuts(graph)) if known is None else known
    report(0.02, f"{len(best.instances)} definitions, {len(best.distinct())} distinct")
    moves: tuple[Move, ...] = ()
    effort = setting.effort
    with Bench(setting.work_dir, setting.threads) as bench:
        tuner = Tuner(setting, bench)

        def said(low: float, high: float) -> Report:
            return lambda f, m: report(low + (high - low) * f, f"{m}; {tuner.standing()}")

        tuner.tune(best, said(0.02, 0.5 if effort.generations else 1.0))
        if known is None and effort.flips:
            best, moves = stitch(best, tuner, effort.flips, said(0.5, 0.6))
        tuner.evolve(best, said(0.6, 1.0))
        is_recalled = known is not None and best.distinct().keys() <= tuner.restored
        if (effort.is_limit_usual or not tuner.is_over()) and not is_recalled:
            tuner.remember()
            _remember_cuts(graph, best, setting, is_timed=tuner.is_timed(best))
    tuned = {key: tuner.tuned[key] for key in best.distinct()}
    spent = setting.journal.spent
    report(1.0, f"{tuner.standing()}, {spent:.1f} s, first valid program after {tuner.first_s:.1f} s")
    return SearchedProgram(best, tuned, moves, spent, tuner.first_s, is_recalled)


def _warm_up(setting: Setting) -> None:
    """Have what every build needs made beside the lowering; builds that fail say so themselves."""
    with suppress(CompilerError):
        setting.build(kernels_source((), setting.dims))


# The cuts that an earlier search of the same graph ended with


def _known_cuts(graph: Graph, setting: Setting) -> Arrangement | None:
    cache, strength = setting.cache, setting.effort.strength
    if cache is None or not strength:
        return None
    identity = _identity(graph, setting)
    entry = setting.journal.step(
        "cuts", setting.environment, str(strength), identity,
        make=lambda: cache.read("cuts", identity, strength),
    )  # fmt: skip
    try:
        return None if entry is None else arrange(graph, [graph.nodes[int(n)] for n in entry["cuts"]])
    except (LoweringError, TypeError, ValueError, KeyError, IndexError):
        return None


def _remember_cuts(graph: Graph, best: Arrangement, setting: Setting, *, is_timed: bool) -> None:
    if setting.cache is not None and is_timed:
        cuts = [number for number, node in enumerate(graph.nodes) if node in best.cuts]
        body = {"cuts": cuts, "strength": setting.effort.strength}
        setting.cache.write("cuts", _identity(graph, setting), body)


def _identity(graph: Graph, setting: Setting) -> str:
    told = [(b.name, b.low, b.high, sorted(b.representative.items())) for b in setting.buckets]
    return hashlib.sha256(f"{print_graph(graph)}|{told}".encode()).hexdigest()[:24]
