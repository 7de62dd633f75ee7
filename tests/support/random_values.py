"""Rows of random numbers for tests of rewrites: what the gate feeds programs, and what it does not.

A row is a case of its own. `GATED` rows are of the kinds that the gate uses; the others hold zeros of either
sign, infinities, NaN, and magnitudes far apart.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from compiler.ir.dtype import bf16_to_f32, round_to_bf16

Array: TypeAlias = npt.NDArray[Any]

GATED = ("unit", "large", "offset", "rising")
KINDS = (*GATED, "zeros", "wide", "infinite", "poisoned", "mixed")
LENGTHS = (0, 1, 2, 3, 5, 8, 17, 33)


def kinds_of(rows: int) -> list[str]:
    """The kind of each row: all in turn."""
    return [KINDS[row % len(KINDS)] for row in range(rows)]


def is_gated(rows: int) -> Array:
    return np.array([kind in GATED for kind in kinds_of(rows)])


def values(rng: np.random.Generator, rows: int, n: int) -> Array:
    """float32 [rows, n]: row r of the r-th kind, a third each as f32, bf16 and f16 hold them."""
    out = np.stack([_row(rng, kind, n) for kind in kinds_of(rows)]).astype(np.float32)
    with np.errstate(over="ignore"):
        narrow = [out, bf16_to_f32(round_to_bf16(out)), out.astype(np.float16).astype(np.float32)]
    of_row = np.arange(rows) // len(KINDS) % 3
    return np.where(
        (of_row == 0)[:, None], narrow[0], np.where((of_row == 1)[:, None], narrow[1], narrow[2])
    ).astype(np.float32)


def _row(rng: np.random.Generator, kind: str, n: int) -> Array:
    unit = rng.standard_normal(n)
    match kind:
        case "large":
            return unit * 8.0
        case "offset":
            return unit + 30.0
        case "rising":
            return unit * 0.25 + np.linspace(-4.0, 4.0, n)
        case "zeros":
            return rng.choice([0.0, -0.0, 1.0, -1.0], n)
        case "wide":
            return unit * 2.0 ** rng.uniform(-20, 20, n)
        case "infinite":
            return np.where(rng.random(n) < 0.4, rng.choice([np.inf, -np.inf], n), unit)
        case "poisoned":
            return np.where(rng.random(n) < 0.3, np.nan, unit)
        case "mixed":
            return rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -2.0], n)
        case _:
            return unit


def same_bits(a: Array, b: Array) -> Array:
    """Element by element: the same float32, the payload of NaN aside."""
    a, b = (np.ascontiguousarray(x, dtype=np.float32) for x in np.broadcast_arrays(a, b))
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
