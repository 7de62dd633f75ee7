"""The equivalence gate: no candidate is timed before its outputs agree with the reference on every input set.

Accepted when `err(candidate, f64) <= 4 * err(plain f32 program, f64) + eps`, by the largest element, on
each set; NaN
and infinities must stand where the reference has them. `eps` is the rounding of one chain of additions as
long as the
longest reduction, which grows as the square root of its length. Where terms cancel, it follows the terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.ir.dim import bind
from compiler.ir.dtype import DType, bf16_to_f32
from compiler.lower.canonical import Canonical
from compiler.lower.interpret import interpret, rounding
from compiler.lower.terms import REDUCTIONS, axis_of, topological
from compiler.search.inputs import InputSet, make_inputs

Array = npt.NDArray[Any]

_SLACK = 4.0
_CHAIN = 2.0**-22
_ROUNDING: Mapping[DType, float] = {DType.BF16: 2.0**-8, DType.F16: 2.0**-10}
_BIG_ELEMENTS = 4_000_000
"""Definitions over more weights than this are gated on fewer sets: their oracle takes seconds."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One gate run: the inputs, and what must come out. `places` index the written buffer.

    `cancelling` is the tolerance where terms cancel, dearer to know: asked for when the first is missed.
    """

    name: str
    dims: Mapping[str, int]
    inputs: Mapping[str, Array]
    expected: Array
    tolerance: float
    places: tuple[Array, ...]
    is_written: Array
    cancelling: Callable[[], float] = lambda: 0.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error` is the largest difference from float64 over all trials, relative to its tolerance."""

    is_accepted: bool
    error: float
    reason: str = ""


def trials(definition: Canonical, sizes: tuple[Mapping[str, int], ...], seed: int) -> Iterator[Trial]:
    """Trials at each of `sizes`; the oracle is computed once for all candidates of a definition."""
    elements = sum(_elements(b.shape) for b in definition.buffers.values())
    sets = (InputSet.UNIT,) if elements > _BIG_ELEMENTS else tuple(InputSet)
    for number, dims in enumerate(sizes):
        for kind in sets if number == 0 else (InputSet.UNIT,):
            yield _trial(definition, dims, kind, seed + number)


def _elements(shape: tuple[object, ...]) -> int:
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) else 1
    return total


def _trial(definition: Canonical, dims: Mapping[str, int], kind: InputSet, seed: int) -> Trial:
    d = definition
    inputs = make_inputs(d, dims, kind, seed)
    exact = interpret(d.term, d.axes, d.extents, inputs, dims)
    plain = interpret(d.term, d.axes, d.extents, inputs, dims, np.float32)
    scale = _largest(exact)
    with np.errstate(all="ignore"):
        slack = _SLACK * _largest(plain.astype(np.float64) - exact)
    stored, chain = _ROUNDING.get(d.dtype, 0.0) * scale, _CHAIN * sqrt(_depth(d, dims))

    @cache
    def cancelling() -> float:
        return slack + stored + chain * _largest(rounding(d.term, d.axes, d.extents, inputs, dims))

    places = tuple(interpret(i, d.axes, d.extents, inputs, dims).astype(np.int64) for i in d.place.indices)
    is_written = np.ones(exact.shape, dtype=bool)
    for coordinate, limit in d.place.limits:
        at = interpret(coordinate, d.axes, d.extents, inputs, dims)
        is_written &= (at >= 0) & (at < bind(limit, dims))
    label = f"{kind}@" + ",".join(f"{k}={v}" for k, v in dims.items())
    budget = slack + stored + chain * scale
    return Trial(label, dims, inputs, exact, budget, places, is_written, cancelling)


def _depth(definition: Canonical, dims: Mapping[str, int]) -> int:
    """The longest reduction, at least 1."""
    reduced = [axis_of(x) for x in topological([definition.term]) if x.kind in REDUCTIONS]
    return max((bind(definition.extents[a], dims) for a in reduced), default=1) or 1


def _largest(x: Array) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max()) if finite.size else 0.0


def judge(trial: Trial, written: Array) -> Verdict:
    """Compare what a candidate wrote, in storage form, with a trial's reference."""
    got = bf16_to_f32(written) if written.dtype == np.uint16 else written
    picked = got[trial.places] if trial.places else got
    picked = picked.astype(np.float64)[trial.is_written]
    expected = trial.expected[trial.is_written]
    if not np.array_equal(np.isnan(picked), np.isnan(expected)):
        return Verdict(False, float("inf"), f"{trial.name}: NaN where the reference has none, or the reverse")
    is_inf = np.isinf(expected)
    if not np.array_equal(picked[is_inf], expected[is_inf]) or np.isinf(picked[~is_inf]).any():
        return Verdict(False, float("inf"), f"{trial.name}: infinities differ")
    finite = np.isfinite(expected)
    error = _largest(picked[finite] - expected[finite])
    tolerance = trial.tolerance if error <= trial.tolerance else max(trial.tolerance, trial.cancelling())
    relative = error / tolerance if tolerance else (0.0 if error == 0.0 else float("inf"))
    if relative > 1.0:
        return Verdict(False, relative, f"{trial.name}: error {error:.3g} over budget {tolerance:.3g}")
    return Verdict(True, relative)
