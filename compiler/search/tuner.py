"""Tunes definitions once, however many arrangements ask for them, and adds up what an arrangement takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.codegen.cpp import print_kernel
from compiler.errors import CompilerError
from compiler.ir.dim import symbols
from compiler.lower.canonical import Canonical
from compiler.search.arrange import Arrangement
from compiler.search.bench import Bench
from compiler.search.candidates import Candidate, candidates, shortlist
from compiler.search.tune import Plan, Tuned, tune

if TYPE_CHECKING:
    from compiler.search.program import Report, Setting

HEADER = '#include "kernels.h"\n#include "tiles.h"\n'
_BARRIER_S = 2e-6


class Stopped(CompilerError):
    """The caller asked to stop."""

    code = "cancelled"


@dataclass(frozen=True, slots=True)
class Move:
    """A change of the cuts that was tried. Times are relative to the start; `measured` None was never
    timed.
    """

    name: str
    predicted: float
    measured: float | None
    is_kept: bool
    refusal: str = ""


class Tuner:
    """Candidates and results by canonical key; what was tuned once is not tuned again."""

    def __init__(self, setting: Setting, bench: Bench) -> None:
        self._setting, self._bench = setting, bench
        self._proposed: dict[str, tuple[Candidate, ...]] = {}
        self.tuned: dict[str, Tuned] = {}

    def propose(self, definition: Canonical) -> tuple[Candidate, ...]:
        """Every candidate of a definition, formed once.

        Raises:
            FormationError: no schedule fits it.
        """
        s = self._setting
        if definition.key not in self._proposed:
            self._proposed[definition.key] = candidates(
                definition, s.buckets, s.threads, s.effort.seeds, has_tiles=s.has_tiles
            )
        return self._proposed[definition.key]

    def tune(self, distinct: Mapping[str, Canonical], report: Report) -> None:
        """Build, gate and time those of `distinct` that were not tuned before.

        Raises:
            Stopped: the caller asked for it.
            NoCandidate, FormationError: a definition that nothing computes.
        """
        s = self._setting
        fresh = {k: d for k, d in distinct.items() if k not in self.tuned}
        found = {k: shortlist(self.propose(d), s.buckets, s.effort.shortlist) for k, d in fresh.items()}
        objects = self._build(found, report)
        for number, (key, definition) in enumerate(fresh.items(), start=1):
            self._check_stop()
            plan = Plan(gate_sizes(definition), s.dims, s.effort.repeats, s.seed, lambda: not s.is_busy())
            made = tune(definition, found[key], s.buckets, objects[key], self._bench, plan)
            self.tuned[key] = made
            accepted = sum(not r.refusal for r in made.records)
            sentence = f"{key}: {accepted} of {len(made.records)} candidates passed the gate"
            report(0.5 + 0.5 * number / len(fresh), sentence)

    def _build(self, found: Mapping[str, Sequence[Candidate]], report: Report) -> dict[str, Path]:
        """Compile each definition's candidates into one shared object; compilers run side by side."""
        objects: dict[str, Path] = {}
        with ThreadPoolExecutor(max_workers=max(1, os.cpu_count() or 1)) as pool:
            sources = {key: kernels_source(some, self._setting.dims) for key, some in found.items()}
            futures = {key: pool.submit(self._setting.build, source) for key, source in sources.items()}
            for key, future in futures.items():
                if self._setting.should_stop():
                    pool.shutdown(wait=False, cancel_futures=True)
                self._check_stop()
                objects[key] = future.result()
                report(0.5 * len(objects) / len(found), f"built {len(found[key])} kernels of {key}")
        return objects

    def _check_stop(self) -> None:
        if self._setting.should_stop():
            raise Stopped("the search was stopped")

    # What an arrangement takes, in seconds by bucket

    def predicted(self, arrangement: Arrangement) -> dict[str, float]:
        """By the cost model alone, each definition at its best."""

        def best(key: str, bucket: str) -> float:
            return min(c.predicted[bucket] for c in self._proposed[key])

        for definition in arrangement.distinct().values():
            self.propose(definition)
        return self._total(arrangement, best)

    def measured(self, arrangement: Arrangement) -> dict[str, float]:
        """As timed; every definition has been tuned."""
        return self._total(arrangement, lambda key, bucket: self.tuned[key].seconds(bucket))

    def _total(self, arrangement: Arrangement, seconds: Callable[[str, str], float]) -> dict[str, float]:
        keys = [i.canonical.key for i in arrangement.instances.values()]
        barriers = _BARRIER_S * len(arrangement.plan)
        return {b.name: barriers + sum(seconds(k, b.name) for k in keys) for b in self._setting.buckets}


def relative(times: Mapping[str, float], base: Mapping[str, float]) -> float:
    """Mean over the buckets of time over base time: each bucket counts alike."""
    return sum(times[b] / base[b] for b in base) / len(base)


def kernels_source(found: Sequence[Candidate], dims: Sequence[str]) -> str:
    """One translation unit with the kernels of these candidates."""
    return HEADER + "\n".join(print_kernel(c.name, c.kernel, dims) for c in found)


def gate_sizes(definition: Canonical) -> tuple[Mapping[str, int], ...]:
    """Sizes that candidates are gated at: an odd one inside a tile, the smallest, one past a tile's edge.

    A loop over blocks of a cache takes several tiles in the first and the last, at every tile size tried.
    """
    known = {s.name: s for b in definition.buffers.values() for n in b.shape for s in symbols(n)}
    wanted = (
        {"T": 5, "R": 3, "B": 2, "M": 9, "NB": 19},
        {"T": 1, "R": 1, "B": 1, "M": 1, "NB": 3},
        {"T": 51, "R": 9, "B": 3, "M": 9, "NB": 29},
    )

    def clamped(sizes: Mapping[str, int]) -> dict[str, int]:
        return {n: min(max(sizes.get(n, 7), s.low), s.high) for n, s in known.items()}

    return tuple({tuple(c.items()): c for c in map(clamped, wanted)}.values())
