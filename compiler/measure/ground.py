"""Where the candidates of one definition are tried: gated against the oracle, timed in the child process.

Every answer goes through the journal, so nothing that was finished is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from math import ceil
from pathlib import Path
from typing import Any

import numpy.typing as npt

from compiler.codegen.layout import WeightLayout, pack
from compiler.errors import CompilerError
from compiler.ir.dim import bind
from compiler.ir.dtype import itemsize
from compiler.lower.canonical import Canonical, Role
from compiler.lower.tiles import Kernel
from compiler.measure.bench import Bench, CandidateCrashed
from compiler.measure.journal import Journal
from compiler.measure.lock import measuring
from compiler.search.candidates import Bucket, Candidate
from compiler.search.gate import Trial, Verdict, is_big, judge, trials
from compiler.search.inputs import InputSet, make_inputs
from compiler.search.kept import Kept

Array = npt.NDArray[Any]

_COLD_BYTES = 48 << 20
"""Weights are rotated through copies of this size in all, so that each launch reads memory as a model's
step does.
"""
_MAX_LAUNCHES = 64
_SAMPLE_S = 0.004
_SAMPLES = 2
_MUCH = 64_000_000
"""A definition over more elements has its trials made when they are needed, one at a time."""


class Stopped(CompilerError):
    """The caller asked to stop."""

    code = "cancelled"


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Plan:
    """How candidates are tried: gate sizes, the order of dims, and who may say to wait or to stop.

    `meaning` is whatever decides answers beside the definition; `kept` takes what the gate refuses.
    """

    gate_sizes: tuple[Mapping[str, int], ...]
    dims: tuple[str, ...]
    seed: int
    meaning: str = ""
    journal: Journal = field(default_factory=Journal)
    is_busy: Callable[[], bool] = _never
    is_over: Callable[[], bool] = _never
    should_stop: Callable[[], bool] = _never
    kept: Kept | None = None


class BenchGround:
    """The hunt's ground on this machine. `object_of` gives the shared object that holds a candidate."""

    def __init__(
        self,
        definition: Canonical,
        buckets: Sequence[Bucket],
        bench: Bench,
        plan: Plan,
        object_of: Callable[[Candidate], Path],
    ) -> None:
        self._definition, self._bench, self._plan = definition, bench, plan
        self._buckets = {b.name: b for b in buckets}
        self._object_of = object_of
        self._prepared: tuple[tuple[str, int], _Timing] | None = None
        self._packed: dict[tuple[int, WeightLayout], Array] = {}
        self._trials: tuple[Trial, ...] = ()
        self._scratch_bytes = 64

    def prepare(self, entrants: Sequence[Candidate]) -> None:
        """Compute the oracle now if these need it, unless it takes very much memory."""
        is_needed = any(not self._plan.journal.knows("gate", *self._what(c.name)) for c in entrants)
        if is_needed and not is_big(self._definition, _MUCH):
            self._trials = self._trials or tuple(self._make_trials())

    def _make_trials(self) -> Iterator[Trial]:
        return trials(self._definition, self._plan.gate_sizes, self._plan.seed)

    def trials(self) -> Iterable[Trial]:
        """The gate's runs. The oracle is computed once for all candidates, unless it takes much memory."""
        if is_big(self._definition):
            found, self._trials = self._trials, ()
            return found or self._make_trials()
        self._trials = self._trials or tuple(self._make_trials())
        return self._trials

    def is_over(self) -> bool:
        return self._plan.is_over()

    def gate(self, entrants: Sequence[Candidate]) -> Sequence[Verdict]:
        """Judge each entrant on every trial, up to its first failure."""
        unknown = [c for c in entrants if not self._plan.journal.knows("gate", *self._what(c.name))]
        live = dict(zip((c.name for c in unknown), self._gate(unknown), strict=True)) if unknown else {}
        return [Verdict(**self._step("gate", c.name, make=partial(_told, live, c.name))) for c in entrants]

    def may_measure(self, bucket: str, contest: int) -> bool:
        return not self._step("busy", f"{bucket} {contest}", make=self._plan.is_busy)

    def take(
        self, bucket: str, contest: int, number: int, entrants: Sequence[Candidate]
    ) -> Mapping[str, float]:
        """One sample of each entrant at the bucket's representative size, while nobody else measures."""
        names = " ".join(c.name for c in entrants)
        what = f"{bucket} {contest}.{number} {sha256(names.encode()).hexdigest()[:16]}"
        return {
            n: float(s)
            for n, s in self._step("time", what, make=lambda: self._take(bucket, contest, entrants)).items()
        }

    def leave(self) -> None:
        """Drop what was shared with the child."""
        self._prepared = None
        self._packed.clear()
        self._bench.forget()

    def _what(self, what: str) -> tuple[str, str, str]:
        return self._plan.meaning, self._definition.key, what

    def _step(self, kind: str, what: str, *, make: Callable[[], Any]) -> Any:
        if self._plan.should_stop():
            raise Stopped("the search was stopped")
        return self._plan.journal.step(kind, *self._what(what), make=make)

    # The gate

    def _gate(self, found: Sequence[Candidate]) -> list[Verdict]:
        verdicts = {c.name: Verdict(True, 0.0) for c in found}
        for trial in self.trials():
            buffers = _Buffers(self._definition, trial.inputs, self._bench, self._packed)
            for c in found:
                if verdicts[c.name].is_accepted:
                    verdicts[c.name] = self._judged(c, trial, buffers, verdicts[c.name])
        self.leave()
        return list(verdicts.values())

    def _judged(self, c: Candidate, trial: Trial, buffers: _Buffers, so_far: Verdict) -> Verdict:
        written = buffers.written
        written[...] = trial.inputs[self._definition.place.buffer]
        try:
            self._load(c)
            self._bench.run(
                c.name, [buffers.arguments(c.kernel)], [trial.dims.get(d, 1) for d in self._plan.dims]
            )
            verdict = judge(trial, written)
        except CandidateCrashed as error:
            verdict = Verdict(False, float("inf"), f"{trial.name}: {error}")
        if not verdict.is_accepted and self._plan.kept is not None:
            self._plan.kept.keep(self._definition, c, trial, written, verdict.reason, self._plan.dims)
        bits = sha256((so_far.bits + verdict.bits).encode()).hexdigest()[:16]
        return Verdict(verdict.is_accepted, max(so_far.error, verdict.error), verdict.reason, bits)

    def _load(self, c: Candidate) -> None:
        self._scratch_bytes = max(self._scratch_bytes, c.kernel.scratch_bytes() + 64)
        self._bench.load(self._object_of(c), self._scratch_bytes)

    # The clock

    def _take(self, bucket: str, contest: int, entrants: Sequence[Candidate]) -> dict[str, float]:
        timing = self._timing(bucket, contest)
        with measuring(self._plan.should_stop):
            return {c.name: self._sample(c, timing) for c in entrants}

    def _timing(self, bucket: str, contest: int) -> _Timing:
        """The inputs of a contest, made when its first sample is taken."""
        if self._prepared is None or self._prepared[0] != (bucket, contest):
            self.leave()
            dims = self._buckets[bucket].representative
            inputs = make_inputs(self._definition, dims, InputSet.UNIT, self._plan.seed)
            buffers = _Buffers(self._definition, inputs, self._bench, self._packed)
            sizes = [dims.get(d, 1) for d in self._plan.dims]
            self._prepared = (bucket, contest), _Timing(buffers, sizes, _copies(self._definition, dims), {})
        return self._prepared[1]

    def _sample(self, c: Candidate, timing: _Timing) -> float:
        """Seconds of a launch: the less of two, over as many cold copies of the weights as fit."""
        try:
            self._load(c)
            if c.name not in timing.launches:
                once = timing.buffers.arguments(c.kernel)
                estimate = min(self._bench.run(c.name, [once] * 4, timing.sizes, _SAMPLES))
                count = max(1, min(_MAX_LAUNCHES, ceil(_SAMPLE_S / max(estimate, 1e-7))))
                copies = min(timing.copies, count)
                distinct = [timing.buffers.arguments(c.kernel, i) for i in range(copies)]
                timing.launches[c.name] = [distinct[i % copies] for i in range(count)]
            return min(self._bench.run(c.name, timing.launches[c.name], timing.sizes, _SAMPLES))
        except CandidateCrashed:
            return float("inf")


@dataclass(frozen=True, slots=True)
class _Timing:
    buffers: _Buffers
    sizes: list[int]
    copies: int
    launches: dict[str, list[list[str]]]


class _Buffers:
    """The shared files of one set of inputs; weights in each layout that a kernel asks for.

    `packed` outlives it: trials may share a weight.
    """

    def __init__(
        self,
        definition: Canonical,
        inputs: Mapping[str, Array],
        bench: Bench,
        packed: dict[tuple[int, WeightLayout], Array],
    ) -> None:
        self._inputs, self._bench, self._packed = inputs, bench, packed
        self._paths: dict[tuple[str, WeightLayout, int], str] = {}
        out = definition.place.buffer
        path, self.written = bench.share(inputs[out])
        self._paths[(out, WeightLayout.ROW_MAJOR, 0)] = path

    def arguments(self, kernel: Kernel, copy: int = 0) -> list[str]:
        """Files of a kernel's parameters, in order; weights of each `copy` are files of their own."""
        return [self._path(p.buffer, p.layout, 0 if p.is_written else copy) for p in kernel.params]

    def _path(self, name: str, layout: WeightLayout, copy: int) -> str:
        key = (name, layout, copy)
        if key not in self._paths:
            array = self._laid_out(self._inputs[name], layout)
            self._paths[key] = self._bench.shared_once(array) if copy == 0 else self._bench.share(array)[0]
        return self._paths[key]

    def _laid_out(self, array: Array, layout: WeightLayout) -> Array:
        if layout is WeightLayout.ROW_MAJOR:
            return array
        key = (id(array), layout)
        if key not in self._packed:
            self._packed[key] = pack(array, layout)
        return self._packed[key]


def _told(verdicts: Mapping[str, Verdict], name: str) -> dict[str, Any]:
    return asdict(verdicts[name])


def _copies(definition: Canonical, dims: Mapping[str, int]) -> int:
    weights = 0
    for b in definition.buffers.values():
        if b.role is Role.WEIGHT and len(b.shape) > 1:
            elements = 1
            for size in b.shape:
                elements *= bind(size, dims)
            weights += elements * itemsize(b.dtype)
    return 1 if weights == 0 else max(1, min(_MAX_LAUNCHES, ceil(_COLD_BYTES / weights)))
