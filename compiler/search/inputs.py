"""Inputs for the gate and the clock: random values on several sets, and indices that stay inside what they
index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.ir.dim import Size, bind
from compiler.ir.dtype import DType, round_to_bf16
from compiler.lower.canonical import Canonical, Role
from compiler.lower.indexing import linear
from compiler.lower.interpret import interpret
from compiler.lower.terms import Kind, Term, axis_of, buffer_of, topological

Array = npt.NDArray[Any]


_DISTINCT_VALUES = 1_048_573


class InputSet(StrEnum):
    """What the values look like. `LARGE` makes exponents overflow unless a maximum is subtracted; `OFFSET`
    makes
    differences of large values cancel; `RISING` moves a running maximum at every tile. `MASKED` leaves little
    of what masks cut; `POISONED` is NaN wherever nothing is read, and in what is written.
    """

    UNIT = "unit"
    LARGE = "large"
    OFFSET = "offset"
    RISING = "rising"
    MASKED = "masked"
    POISONED = "poisoned"


def input_sets(definition: Canonical) -> tuple[InputSet, ...]:
    """The sets that mean something for a definition: without a mask there is nothing to mask."""
    has_masks = bool(_masks(definition)) or any(b.dtype is DType.BOOL for b in definition.buffers.values())
    return tuple(s for s in InputSet if s is not InputSet.MASKED or has_masks)


def make_inputs(
    definition: Canonical,
    dims: Mapping[str, int],
    kind: InputSet,
    seed: int,
    made: dict[str, Array] | None = None,
) -> dict[str, Array]:
    """One array per buffer, in storage form; what the definition writes starts as zeros, or poisoned.

    `made` keeps the weights from one call to the next.
    """
    rng = np.random.default_rng([seed, list(InputSet).index(kind)])
    limits, masks = index_limits(definition), _masks(definition)
    unique = {buffer_of(x) for x in topological(definition.place.indices) if x.kind is Kind.LOAD}
    out: dict[str, Array] = {}
    for name, buffer in definition.buffers.items():
        shape = tuple(bind(s, dims) for s in buffer.shape)
        if made is not None and name in made:
            out[name] = made[name]
        elif name == definition.place.buffer:
            out[name] = np.zeros(shape, dtype=_storage(buffer.dtype))
        elif buffer.dtype is DType.I32:
            limit = max(min(bind(n, dims) for n in limits.get(name, (2,))), 1)
            out[name] = _indices(rng, shape, limit, is_unique=name in unique)
            if kind is InputSet.MASKED and name in masks and name not in unique:
                out[name] *= rng.integers(0, 2, shape, dtype=np.int32)
        elif buffer.dtype is DType.BOOL:
            out[name] = rng.random(shape) < (0.1 if kind is InputSet.MASKED else 0.5)
        else:
            values = _values(rng, shape, kind)
            out[name] = (
                round_to_bf16(values) if buffer.dtype is DType.BF16 else values.astype(_storage(buffer.dtype))
            )
            if made is not None and buffer.role is Role.WEIGHT:
                made[name] = out[name]
    return _poisoned(definition, out, dims) if kind is InputSet.POISONED else out


def _poisoned(definition: Canonical, inputs: dict[str, Array], dims: Mapping[str, int]) -> dict[str, Array]:
    """The same inputs, NaN where the definition does not read."""
    roots = [definition.term, *definition.place.indices, *(c for c, _ in definition.place.limits)]
    read = {name: np.zeros(a.shape, dtype=bool) for name, a in inputs.items() if _is_float(definition, name)}
    for load in topological(roots):
        if load.kind is Kind.LOAD and buffer_of(load) in read:
            axes, mask = sorted(load.free), read[buffer_of(load)]
            at = [interpret(i, axes, definition.extents, inputs, dims) for i in load.args]
            last = [n - 1 for n in (bind(s, dims) for s in definition.buffers[buffer_of(load)].shape)]
            mask[tuple(np.clip(i.astype(np.int64), 0, n) for i, n in zip(at, last, strict=True))] = True
    found = dict(inputs)
    for name, mask in read.items():
        nan = round_to_bf16(np.full(1, np.nan, np.float32))[0] if inputs[name].dtype == np.uint16 else np.nan
        found[name] = np.where(mask, inputs[name], np.asarray(nan, inputs[name].dtype))
    return found


def _is_float(definition: Canonical, name: str) -> bool:
    return definition.buffers[name].dtype in (DType.F32, DType.BF16, DType.F16)


def _masks(definition: Canonical) -> frozenset[str]:
    """Integer buffers that are compared with an axis."""
    reached = topological([definition.term])
    return frozenset(
        name
        for x in reached
        if x.kind is Kind.LT and x.args[0].dtype is DType.I32
        for name, _ in _compared(x)
    )


def index_limits(definition: Canonical) -> Mapping[str, tuple[Size, ...]]:
    """For each i32 buffer, below what its values must stay: to be a valid index wherever they are one, and to
    fall inside an axis that they are compared with, so that a mask cuts somewhere.
    """
    found: dict[str, list[Size]] = {}
    roots = [definition.term, *definition.place.indices]
    reached = topological(roots)
    uses = [(x.args, definition.buffers[buffer_of(x)].shape) for x in reached if x.kind is Kind.LOAD]
    place = definition.place
    uses.append((place.indices, definition.buffers[place.buffer].shape))
    for args, shape in uses:
        for index, size in zip(args, shape, strict=True):
            for name, limit in _limits_of(index, size):
                found.setdefault(name, []).append(limit)
    for x in reached:
        if x.kind is Kind.LT and x.args[0].dtype is DType.I32:
            for name, axis in _compared(x):
                found.setdefault(name, []).append(definition.extents[axis])
    return {name: tuple(dict.fromkeys(limits)) for name, limits in found.items()}


def _limits_of(index: Term, size: Size) -> Iterator[tuple[str, Size]]:
    """Limits that one index below `size` puts on the buffers it is read from."""
    for atom, coefficient in linear(index).coefficients.items():
        if coefficient != 1:
            continue
        if atom.kind is Kind.LOAD:
            yield buffer_of(atom), size
        elif atom.kind is Kind.FLOOR_DIV and atom.args[0].kind is Kind.LOAD:
            divisor = atom.args[1].attr
            assert isinstance(divisor, int)
            yield buffer_of(atom.args[0]), size * divisor


def _compared(less: Term) -> Iterator[tuple[str, str]]:
    """Buffers whose values one side of a comparison reads, each with an axis that is the other side."""
    for one, other in (less.args, less.args[::-1]):
        for axis in linear(one).coefficients:
            for atom in linear(other).coefficients:
                if axis.kind is Kind.IDX and atom.kind is Kind.LOAD:
                    yield buffer_of(atom), axis_of(axis)


def _indices(rng: np.random.Generator, shape: tuple[int, ...], limit: int, *, is_unique: bool) -> Array:
    count = int(np.prod(shape))
    if is_unique and limit >= count:
        return rng.permutation(limit)[:count].reshape(shape).astype(np.int32)
    return rng.integers(0, limit, shape).astype(np.int32)


def _values(rng: np.random.Generator, shape: tuple[int, ...], kind: InputSet) -> npt.NDArray[np.float32]:
    values = _normal(rng, shape)
    if kind is InputSet.LARGE:
        return values * np.float32(8.0)
    if kind is InputSet.OFFSET:
        return values + np.float32(30.0)
    if kind is InputSet.RISING and shape:
        ramp = np.linspace(-4.0, 4.0, shape[-1], dtype=np.float32)
        return values * np.float32(0.25) + ramp
    return values


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Unit normal values; a large array repeats a prime number of them, which is much faster to make."""
    count = int(np.prod(shape))
    fresh = rng.standard_normal(min(count, _DISTINCT_VALUES), dtype=np.float32)
    return np.resize(fresh, shape)


def _storage(dtype: DType) -> npt.DTypeLike:
    return {DType.BF16: np.uint16, DType.F16: np.float16, DType.BOOL: np.bool_, DType.I32: np.int32}.get(
        dtype, np.float32
    )
