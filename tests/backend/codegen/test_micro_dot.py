"""Contractions over row-major operands, at every level of this CPU."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.dtype import bf16_to_f32, round_to_bf16
from tests.support.micro_kernels import MicroKernels, guarded

SHAPES = [
    (1, 1, 1),
    (1, 64, 64),
    (2, 17, 3),
    (3, 16, 64),
    (5, 33, 31),
    (6, 96, 40),
    (7, 130, 17),
    (13, 5, 129),
]
KERNELS = ["dot_f32", "dot_bf16", "dot_f32_nt", "dot_bf16_nt", "dot_runs_f32", "dot_runs_bf16"]


def operands(m: int, n: int, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A [M, K], B [K, N] and C [M, N], unit normal."""
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n), (m, n)))


def stored(name: str, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """B as the kernel takes it, rows padded apart by poison, and the float32 values that it stands for."""
    values = bf16_to_f32(round_to_bf16(b)) if "bf16" in name else b
    laid = values.T if name.endswith("_nt") else values
    padded = np.full((laid.shape[0], laid.shape[1] + 3), np.nan, dtype=np.float32)
    padded[:, :-3] = laid
    given = round_to_bf16(padded) if "bf16" in name else padded
    return given[:, :-3], values


def contract(
    kernels: MicroKernels, name: str, a: np.ndarray, b: np.ndarray, c: np.ndarray | None
) -> np.ndarray:
    if name.endswith("_nt"):
        return kernels.reference("reference_lanes", a, b.T, c)
    return kernels.reference("reference_chain", a, b, c)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_every_element_follows_the_numeric_contract(
    kernels: MicroKernels, name: str, shape: tuple[int, int, int]
) -> None:
    a, b, _ = operands(*shape)
    given, values = stored(name, b)
    assert np.array_equal(
        kernels.dot(f"call_{name}", a, given, shape[1]), contract(kernels, name, a, values, None)
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_accumulating_continues_from_what_is_there(
    kernels: MicroKernels, name: str, shape: tuple[int, int, int]
) -> None:
    a, b, c = operands(*shape)
    given, values = stored(name, b)
    assert np.array_equal(
        kernels.dot(f"call_{name}", a, given, shape[1], c), contract(kernels, name, a, values, c)
    )


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_close_to_float64(kernels: MicroKernels, name: str) -> None:
    a, b, _ = operands(9, 70, 300)
    given, values = stored(name, b)
    exact = a.astype(np.float64) @ values.astype(np.float64)
    size = np.abs(a).astype(np.float64) @ np.abs(values).astype(np.float64)
    assert (np.abs(kernels.dot(f"call_{name}", a, given, 70) - exact) <= 300 * 2**-24 * size).all()


@pytest.mark.parametrize("rows", range(1, 14))
@pytest.mark.parametrize("name", KERNELS)
def test_a_rows_bits_do_not_depend_on_how_many_rows_there_are(
    kernels: MicroKernels, name: str, rows: int
) -> None:
    a, b, _ = operands(13, 50, 47)
    given, _ = stored(name, b)
    together = kernels.dot(f"call_{name}", a, given, 50)
    assert np.array_equal(kernels.dot(f"call_{name}", a[:rows], given, 50), together[:rows])


@pytest.mark.parametrize("columns", [1, 15, 16, 31, 48, 64, 79])
@pytest.mark.parametrize("name", ["dot_f32", "dot_bf16"])
def test_a_columns_bits_do_not_depend_on_how_many_columns_there_are(
    kernels: MicroKernels, name: str, columns: int
) -> None:
    a, b, _ = operands(5, 80, 29)
    given, _ = stored(name, b)
    together = kernels.dot(f"call_{name}", a, given, 80)
    assert np.array_equal(kernels.dot(f"call_{name}", a, given[:, :columns], columns), together[:, :columns])


@pytest.mark.parametrize("name", KERNELS)
def test_nan_and_infinity_stay_in_their_row_and_column(kernels: MicroKernels, name: str) -> None:
    a, b, _ = operands(4, 20, 18)
    a[1, 3], b[5, 7] = np.nan, np.inf
    given, _ = stored(name, b)
    got = kernels.dot(f"call_{name}", a, given, 20)
    is_touched = np.zeros((4, 20), dtype=bool)
    is_touched[1, :] = is_touched[:, 7] = True
    assert np.isnan(got[1]).all()
    assert np.isinf(got[[0, 2, 3], 7]).all()
    assert np.isfinite(got[~is_touched]).all()


@pytest.mark.parametrize("name", KERNELS)
def test_no_terms_give_zero(kernels: MicroKernels, name: str) -> None:
    b = np.zeros((20, 4) if name.endswith("_nt") else (4, 20), np.uint16 if "bf16" in name else np.float32)
    assert (kernels.dot(f"call_{name}", np.zeros((3, 4), np.float32)[:, :0], b, 20) == 0).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KERNELS)
def test_nothing_beyond_the_operands_is_read(
    kernels: MicroKernels, name: str, shape: tuple[int, int, int]
) -> None:
    a, b, _ = operands(*shape)
    laid = np.ascontiguousarray(b.T if name.endswith("_nt") else b)
    given = guarded(round_to_bf16(laid) if "bf16" in name else laid)
    values = bf16_to_f32(round_to_bf16(b)) if "bf16" in name else b
    assert np.array_equal(
        kernels.dot(f"call_{name}", guarded(a), given, shape[1]), contract(kernels, name, a, values, None)
    )
