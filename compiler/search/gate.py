"""The equivalence gate: no candidate is timed before its outputs agree with the reference on every input set.

Accepted when `err(candidate, f64) <= 4 * err(plain f32 program, f64) + eps`, by the largest element, on
each set; NaN
and infinities must stand where the reference has them. `eps` is the rounding of one chain of additions as
long as the
longest reduction, which grows as the square root of its length. Where terms cancel, it follows the terms.
What a definition does not write must stay as it was. Of very long axes some positions are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.ir.dim import bind
from compiler.ir.dtype import DType, bf16_to_f32
from compiler.lower.canonical import Canonical
from compiler.lower.interpret import interpret, rounding
from compiler.lower.terms import REDUCTIONS, axis_of, topological
from compiler.search.inputs import InputSet, input_sets, make_inputs

Array = npt.NDArray[Any]

_SLACK = 4.0
_CHAIN = 2.0**-22
_ROUNDING: Mapping[DType, float] = {DType.BF16: 2.0**-8, DType.F16: 2.0**-10}
_BIG_ELEMENTS = 4_000_000
"""Definitions over more weights than this are gated on fewer sets: their oracle takes seconds."""
_BIG_SIZES = 3
_LONG_AXIS = 4096
_SOME_POINTS = 512


@dataclass(frozen=True, slots=True)
class Trial:
    """One gate run: the inputs, and what must come out. `places` index the written buffer.

    `cancelling` is the tolerance where terms cancel, dearer to know: asked for when the first is missed.
    `untouched` marks what must stay as it was, where that is anything.
    """

    name: str
    dims: Mapping[str, int]
    inputs: Mapping[str, Array]
    expected: Array
    tolerance: float
    places: tuple[Array, ...]
    is_written: Array
    cancelling: Callable[[], float] = lambda: 0.0
    untouched: Array | None = None
    written: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`error` is the largest difference from float64 over all trials, relative to its tolerance; `bits` is a
    digest of all that was written.
    """

    is_accepted: bool
    error: float
    reason: str = ""
    bits: str = ""


def trials(definition: Canonical, sizes: tuple[Mapping[str, int], ...], seed: int) -> Iterator[Trial]:
    """Trials at each of `sizes`; the oracle is computed once for all candidates of a definition.

    A big definition's weights are made once, and it is judged on fewer sets and sizes.
    """
    if is_big(definition):
        made: dict[str, Array] = {}
        for number, dims in enumerate(sizes[:_BIG_SIZES]):
            yield _trial(definition, dims, InputSet.UNIT, seed + number, made)
        return
    for number, dims in enumerate(sizes):
        for kind in input_sets(definition) if number == 0 else (InputSet.UNIT,):
            yield _trial(definition, dims, kind, seed + number)


def is_big(definition: Canonical, elements: int = _BIG_ELEMENTS) -> bool:
    """Whether its buffers hold more elements; by default so many that its oracle takes seconds."""
    return sum(_elements(b.shape) for b in definition.buffers.values()) > elements


def _elements(shape: tuple[object, ...]) -> int:
    total = 1
    for size in shape:
        total *= size if isinstance(size, int) else 1
    return total


def _trial(
    d: Canonical, dims: Mapping[str, int], kind: InputSet, seed: int, made: dict[str, Array] | None = None
) -> Trial:
    points = _points(d, seed)
    inputs = make_inputs(d, dims, kind, seed, made)
    exact = interpret(d.term, d.axes, d.extents, inputs, dims, points=points)
    plain = interpret(d.term, d.axes, d.extents, inputs, dims, np.float32, points)
    scale = _largest(exact)
    with np.errstate(all="ignore"):
        slack = _SLACK * _largest(plain.astype(np.float64) - exact)
    stored, chain = _ROUNDING.get(d.dtype, 0.0) * scale, _CHAIN * sqrt(_depth(d, dims))

    @cache
    def cancelling() -> float:
        moved = rounding(d.term, d.axes, d.extents, inputs, dims, points)
        return slack + stored + chain * _largest(moved)

    places = tuple(
        interpret(i, d.axes, d.extents, inputs, dims, points=points).astype(np.int64) for i in d.place.indices
    )
    is_written = np.ones(exact.shape, dtype=bool)
    for coordinate, limit in d.place.limits:
        at = interpret(coordinate, d.axes, d.extents, inputs, dims, points=points)
        is_written &= (at >= 0) & (at < bind(limit, dims))
    untouched = None if points else _untouched(inputs[d.place.buffer].shape, places, is_written)
    label = f"{kind}@" + ",".join(f"{k}={v}" for k, v in dims.items())
    budget = slack + stored + chain * scale
    return Trial(
        label, dims, inputs, exact, budget, places, is_written, cancelling, untouched, d.place.buffer
    )


def _points(definition: Canonical, seed: int) -> dict[str, Array]:
    """Positions of the very long output axes: both ends, and some between."""
    found: dict[str, Array] = {}
    for axis in definition.axes:
        extent = definition.extents[axis]
        if isinstance(extent, int) and extent > _LONG_AXIS:
            between = np.random.default_rng(seed).choice(extent, _SOME_POINTS, replace=False)
            ends = np.r_[: _SOME_POINTS // 8, extent - _SOME_POINTS // 8 : extent]
            found[axis] = np.unique(np.concatenate([between, ends])).astype(np.int64)
    return found


def _untouched(shape: tuple[int, ...], places: tuple[Array, ...], is_written: Array) -> Array | None:
    """What is not written, where that is anything."""
    touched = np.zeros(shape, dtype=bool)
    if places:
        touched[tuple(p[is_written] for p in places)] = True
    else:
        touched[...] = True
    return None if touched.all() else ~touched


def _depth(definition: Canonical, dims: Mapping[str, int]) -> int:
    """The longest reduction, at least 1."""
    reduced = [axis_of(x) for x in topological([definition.term]) if x.kind in REDUCTIONS]
    return max((bind(definition.extents[a], dims) for a in reduced), default=1) or 1


def _largest(x: Array) -> float:
    finite = np.abs(x[np.isfinite(x)])
    return float(finite.max()) if finite.size else 0.0


def judge(trial: Trial, written: Array) -> Verdict:
    """Compare what a candidate wrote, in storage form, with a trial's reference."""
    if trial.untouched is not None:
        before, after = (x[trial.untouched].tobytes() for x in (trial.inputs[trial.written], written))
        if before != after:
            return Verdict(False, float("inf"), f"{trial.name}: wrote where the definition does not")
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
    bits = sha256(np.where(np.isnan(picked), np.nan, picked).tobytes()).hexdigest()
    return Verdict(True, relative, bits=bits)
