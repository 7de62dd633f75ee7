"""Kernels of whole graphs under Triton's interpreter, each beside the float64 meaning of its definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.codegen.triton import KernelRun, run_interpreted, triton_kernels, with_steady_form
from compiler.ir import DType, Graph, bf16_to_f32, bind, round_to_bf16
from compiler.lower.canonical import Canonical
from compiler.lower.interpret import interpret
from compiler.search.arrange import arrange
from compiler.search.cuts import starting_cuts
from compiler.search.gate import Trial, trials

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One launch and what it should write; `label` names it in a failed test."""

    label: str
    run: KernelRun
    expected: Array
    places: tuple[Array, ...] = ()
    is_written: Array | bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    case: Case
    written: Array

    @property
    def values(self) -> Array:
        """What was written, as floats, in the order of the definition's axes."""
        got = bf16_to_f32(self.written) if self.written.dtype == np.uint16 else self.written
        return got[self.case.places] if self.case.places else got

    @property
    def error(self) -> float:
        """Largest difference, relative to the largest value; NaN where a NaN is on one side only."""
        got, want = self.values[self.case.is_written], self.case.expected[self.case.is_written]
        if not np.array_equal(np.isnan(got), np.isnan(want)):
            return float("nan")
        return float(np.nanmax(np.abs(got - want)) / max(np.nanmax(np.abs(want)), 1e-30))


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of one interpreter process; `over(limit)` lists what is further off than that."""

    found: Sequence[Outcome] = field(default_factory=tuple)

    def over(self, limit: float, halves: float = 2.0**-8) -> list[tuple[str, float]]:
        """`halves` is the limit of what is stored in 16 bits, where a rounding may fall either way."""
        limits = [(o, halves if o.written.dtype == np.uint16 else limit) for o in self.found]
        return [(o.case.label, o.error) for o, most in limits if not o.error <= most]


def run_cases(cases: Sequence[Case]) -> Outcomes:
    outputs = run_interpreted([c.run for c in cases])
    return Outcomes(tuple(Outcome(c, o) for c, o in zip(cases, outputs, strict=True)))


def gated_cases(definition: Canonical, sizes: Mapping[str, int], schedules: int = 1) -> Iterator[Case]:
    """A definition on the gate's first input set, under its first `schedules`."""
    steady = with_steady_form(definition)
    trial = next(iter(trials(definition, (sizes,), 0)))
    for scheduled in triton_kernels(steady)[:schedules]:
        yield _case(f"{definition.key} {scheduled.schedule.describe()}", scheduled.kernel, trial)


def _case(label: str, kernel: Any, trial: Trial) -> Case:
    buffers = {name: array.copy() for name, array in trial.inputs.items()}
    run = KernelRun(kernel, buffers, trial.dims)
    return Case(f"{label} {trial.name}", run, trial.expected, trial.places, trial.is_written)


def chained_cases(
    label: str, graph: Graph, inputs: Mapping[str, Array], dims: Mapping[str, int], pick: Pick | None = None
) -> Iterator[Case]:
    """Every definition of a graph without scatters, each fed with the reference values of those before it."""
    arrangement = arrange(graph, starting_cuts(graph))
    known = {f"{'in' if name in graph.inputs else 'w'}:{name}": array for name, array in inputs.items()}
    sizes = {s.name: dims[s.name] for s in graph.symbols}
    for stage in arrangement.plan:
        for d in stage:
            instance = arrangement.instances[d.name]
            c = instance.canonical
            shape = tuple(bind(n, dims) for n in d.shape)
            known[d.name] = np.zeros(shape, np.uint16 if d.dtype is DType.BF16 else np.float32)
            buffers = {new: known[old] for new, old in instance.arguments.items()}
            scheduled = (pick or _first)(c)
            exact = interpret(c.term, c.axes, c.extents, buffers, dims).reshape(shape)
            run = KernelRun(scheduled, {k: v.copy() for k, v in buffers.items()}, sizes)
            yield Case(f"{label} {d.name} {dict(sizes)}", run, exact)
            narrow = exact.astype(np.float32)
            known[d.name] = round_to_bf16(narrow) if d.dtype is DType.BF16 else narrow


Pick = Callable[[Canonical], Any]


def _first(definition: Canonical) -> Any:
    return triton_kernels(with_steady_form(definition))[0].kernel
