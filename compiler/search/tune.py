"""Tune definitions: build the shortlist, gate every candidate, time those that pass, choose one per bucket.

Buckets share one numeric recipe: it is chosen for the best weighted total, and each bucket then takes the
fastest
candidate of that recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.codegen.layout import WeightLayout, pack
from compiler.errors import CompilerError
from compiler.ir.dim import bind
from compiler.ir.dtype import itemsize
from compiler.lower.canonical import Canonical, Role
from compiler.lower.tiles import Kernel
from compiler.search.bench import Bench, CandidateCrashed
from compiler.search.candidates import Bucket, Candidate, Recipe
from compiler.search.gate import Trial, Verdict, judge, trials
from compiler.search.inputs import InputSet, make_inputs

Array = npt.NDArray[Any]

_COLD_BYTES = 48 << 20
"""Weights are rotated through copies of this size in all, so that each launch reads memory as a model's
step does.
"""
_MAX_LAUNCHES = 64
_SAMPLE_S = 0.004
_SAMPLES = 2


class NoCandidate(CompilerError):
    """Every candidate of a definition failed the gate: a fault of the compiler, never of the model."""

    code = "no_candidate_passed"


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one candidate, for the report and the journal. Seconds are the least of
    interleaved samples.
    """

    definition: str
    candidate: str
    schedule: str
    predicted_s: Mapping[str, float]
    error: float
    refusal: str = ""
    measured_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tuned:
    """The candidate chosen for each bucket, and what was tried."""

    definition: Canonical
    chosen: Mapping[str, Candidate]
    records: tuple[Record, ...]

    def seconds(self, bucket: str) -> float:
        """What the chosen candidate takes in a bucket: as timed, or as predicted where it was not."""
        name = self.chosen[bucket].name
        record = next(r for r in self.records if r.candidate == name)
        return record.measured_s.get(bucket, record.predicted_s[bucket])


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to try: gate sizes, and repeats of each timing (0 decides by the cost model alone)."""

    gate_sizes: tuple[Mapping[str, int], ...]
    dims: tuple[str, ...]
    repeats: int
    seed: int
    may_measure: Callable[[], bool] = lambda: True


def tune(
    definition: Canonical,
    found: Sequence[Candidate],
    buckets: Sequence[Bucket],
    shared_object: Path,
    bench: Bench,
    plan: Plan,
) -> Tuned:
    """Gate, time and choose among `found`, whose kernels `shared_object` holds.

    Raises:
        NoCandidate: none of them computes the definition.
    """
    bench.load(shared_object, max(c.kernel.scratch_bytes() for c in found) + 64)
    verdicts = _gate(definition, found, bench, plan)
    passed = [c for c in found if verdicts[c.name].is_accepted]
    if not passed:
        raise NoCandidate(f"{definition.key}: {'; '.join(v.reason for v in list(verdicts.values())[:3])}")
    measured: dict[str, Mapping[str, float]] = {}
    if plan.repeats and plan.may_measure():
        measured = {b.name: _time(definition, passed, b, bench, plan) for b in buckets}
    bench.forget()
    chosen = choose(passed, buckets, measured)
    records = tuple(_record(definition, c, verdicts[c.name], measured) for c in found)
    return Tuned(definition, chosen, records)


def choose(
    passed: Sequence[Candidate], buckets: Sequence[Bucket], measured: Mapping[str, Mapping[str, float]]
) -> Mapping[str, Candidate]:
    """The fastest candidate of each bucket, within the one recipe whose total over the buckets is least."""

    def seconds(c: Candidate, bucket: Bucket) -> float:
        return measured.get(bucket.name, {}).get(c.name, c.predicted[bucket.name])

    def best(recipe: Recipe, bucket: Bucket) -> Candidate:
        return min((c for c in passed if c.recipe == recipe), key=lambda c: (seconds(c, bucket), c.name))

    def total(recipe: Recipe) -> float:
        fastest = {b.name: min(seconds(c, b) for c in passed) for b in buckets}
        return sum(seconds(best(recipe, b), b) / max(fastest[b.name], 1e-12) for b in buckets)

    recipes = sorted({c.recipe for c in passed}, key=lambda r: (r.term, r.stream_block, r.layouts))
    winner = min(recipes, key=total)
    return {b.name: best(winner, b) for b in buckets}


def _record(
    definition: Canonical, c: Candidate, verdict: Verdict, measured: Mapping[str, Mapping[str, float]]
) -> Record:
    times = {b: m[c.name] for b, m in measured.items() if c.name in m}
    return Record(
        definition.key, c.name, c.schedule.describe(), c.predicted, verdict.error, verdict.reason, times
    )


# The gate


def _gate(definition: Canonical, found: Sequence[Candidate], bench: Bench, plan: Plan) -> dict[str, Verdict]:
    verdicts = {c.name: Verdict(True, 0.0) for c in found}
    for trial in trials(definition, plan.gate_sizes, plan.seed):
        buffers = Buffers(definition, trial.inputs, bench)
        for c in found:
            if verdicts[c.name].is_accepted:
                verdicts[c.name] = _judged(c, trial, buffers, bench, plan, verdicts[c.name].error)
        bench.forget()
    return verdicts


def _judged(c: Candidate, trial: Trial, buffers: Buffers, bench: Bench, plan: Plan, worst: float) -> Verdict:
    names = buffers.arguments(c.kernel)
    written = buffers.written
    written[...] = np.zeros((), written.dtype)
    try:
        bench.run(c.name, [names], [trial.dims.get(d, 1) for d in plan.dims])
    except CandidateCrashed as error:
        return Verdict(False, float("inf"), f"{trial.name}: {error}")
    verdict = judge(trial, written)
    return Verdict(verdict.is_accepted, max(worst, verdict.error), verdict.reason)


class Buffers:
    """The shared files of one set of inputs; weights in each layout that a kernel asks for."""

    def __init__(self, definition: Canonical, inputs: Mapping[str, Array], bench: Bench) -> None:
        self._inputs, self._bench = inputs, bench
        self._paths: dict[tuple[str, WeightLayout, int], str] = {}
        self._packed: dict[tuple[str, WeightLayout], Array] = {}
        out = definition.place.buffer
        path, self.written = bench.share(inputs[out])
        self._paths[(out, WeightLayout.ROW_MAJOR, 0)] = path

    def arguments(self, kernel: Kernel, copy: int = 0) -> list[str]:
        """Files of a kernel's parameters, in order; weights of each `copy` are files of their own."""
        return [self._path(p.buffer, p.layout, 0 if p.is_written else copy) for p in kernel.params]

    def _path(self, name: str, layout: WeightLayout, copy: int) -> str:
        key = (name, layout, copy)
        if key not in self._paths:
            self._paths[key], _ = self._bench.share(self._laid_out(name, layout))
        return self._paths[key]

    def _laid_out(self, name: str, layout: WeightLayout) -> Array:
        if layout is WeightLayout.ROW_MAJOR:
            return self._inputs[name]
        key = (name, layout)
        if key not in self._packed:
            self._packed[key] = pack(self._inputs[name], layout)
        return self._packed[key]


# The clock


def _time(
    definition: Canonical, passed: Sequence[Candidate], bucket: Bucket, bench: Bench, plan: Plan
) -> dict[str, float]:
    """Least seconds of each candidate at the bucket's representative size, interleaved: what a busy
    machine adds
    is noise, and only upwards.
    """
    dims = bucket.representative
    inputs = make_inputs(definition, dims, InputSet.UNIT, plan.seed)
    buffers = Buffers(definition, inputs, bench)
    sizes = [dims.get(d, 1) for d in plan.dims]
    samples: dict[str, list[float]] = {c.name: [] for c in passed}
    launches = {c.name: _launches(definition, c, dims, buffers, bench, sizes) for c in passed}
    for _ in range(plan.repeats):
        for c in passed:
            samples[c.name].extend(_sample(c, launches[c.name], bench, sizes))
    bench.forget()
    return {name: min(s) for name, s in samples.items()}


def _sample(c: Candidate, launches: list[list[str]], bench: Bench, sizes: Sequence[int]) -> list[float]:
    try:
        return bench.run(c.name, launches, sizes, _SAMPLES)
    except CandidateCrashed:
        return [float("inf")]


def _launches(
    definition: Canonical,
    c: Candidate,
    dims: Mapping[str, int],
    buffers: Buffers,
    bench: Bench,
    sizes: Sequence[int],
) -> list[list[str]]:
    """Arguments of the launches of one sample: enough to time, over as many cold copies of the weights as
    fit.
    """
    once = buffers.arguments(c.kernel)
    estimate = min(_sample(c, [once] * 4, bench, sizes))
    count = max(1, min(_MAX_LAUNCHES, ceil(_SAMPLE_S / max(estimate, 1e-7))))
    copies = min(_copies(definition, dims), count)
    distinct = [buffers.arguments(c.kernel, i) for i in range(copies)]
    return [distinct[i % copies] for i in range(count)]


def _copies(definition: Canonical, dims: Mapping[str, int]) -> int:
    weights = 0
    for b in definition.buffers.values():
        if b.role is Role.WEIGHT and len(b.shape) > 1:
            elements = 1
            for size in b.shape:
                elements *= bind(size, dims)
            weights += elements * itemsize(b.dtype)
    return 1 if weights == 0 else max(1, min(_MAX_LAUNCHES, ceil(_COLD_BYTES / weights)))
