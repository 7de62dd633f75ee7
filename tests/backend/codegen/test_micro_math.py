"""The vectorisable mathematics: accuracy against float64, edges, and vector results equal to scalar ones."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.ir.dtype import bf16_to_f32, round_to_bf16
from tests.support.micro_kernels import MicroKernels

NAN, INF = np.float32(np.nan), np.float32(np.inf)
EVERY_HALF = np.arange(1 << 16, dtype=np.uint16)


def every_kind_of_float(count: int = 1 << 18) -> np.ndarray:
    """Random bit patterns, an odd number: all exponents, denormals, infinities and NaNs among them."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, count + 3, dtype=np.uint32)
    edges = np.array([0, -0.0, 1, -1, np.nan, np.inf, -np.inf, 128, -150, 1e-45, 3.4e38], dtype=np.float32)
    return np.concatenate([edges, bits.view(np.float32)])


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    return float(
        np.max(np.abs(got.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(np.float32)))
    )


def test_exp2_is_accurate_over_its_domain(kernels: MicroKernels) -> None:
    x = np.linspace(-126, 127.99, 1_000_001, dtype=np.float32)
    assert ulps(kernels.map("exp2f", x), np.exp2(x.astype(np.float64))) <= 1.3


def test_exp2_rounds_denormal_results(kernels: MicroKernels) -> None:
    x = np.linspace(-150, -126, 100_001, dtype=np.float32)
    assert ulps(kernels.map("exp2f", x), np.exp2(x.astype(np.float64))) <= 1.0


def test_exp2_is_exact_at_integers(kernels: MicroKernels) -> None:
    powers = np.arange(-149, 128)
    x = powers.astype(np.float32)
    assert np.array_equal(kernels.map("exp2f", x), np.ldexp(np.float32(1), powers))


def test_exp2_at_its_edges(kernels: MicroKernels) -> None:
    x = np.array([-np.inf, -1e30, -151, 0, 128, 1e30, np.inf, np.nan], dtype=np.float32)
    assert np.array_equal(kernels.map("exp2f", x), [0, 0, 0, 1, INF, INF, INF, NAN], equal_nan=True)


def test_log2_is_accurate_over_its_domain(kernels: MicroKernels) -> None:
    near_one = np.linspace(0.5, 2, 500_001, dtype=np.float32)
    x = np.concatenate([near_one, np.geomspace(1e-44, 3e38, 500_001).astype(np.float32)])
    x = x[x != 1]
    assert ulps(kernels.map("log2f", x), np.log2(x.astype(np.float64))) <= 2.0


def test_log2_at_its_edges(kernels: MicroKernels) -> None:
    x = np.array([0, -0.0, 1, 2, -1, -np.inf, np.inf, np.nan], dtype=np.float32)
    assert np.array_equal(kernels.map("log2f", x), [-INF, -INF, 0, 1, NAN, NAN, INF, NAN], equal_nan=True)


def test_sin_is_accurate_to_a_hundred_thousand(kernels: MicroKernels) -> None:
    x = np.concatenate([np.linspace(-1e5, 1e5, 1_000_001), np.arange(-30000, 30000) * np.pi]).astype(
        np.float32
    )
    assert ulps(kernels.map("sinf", x), np.sin(x.astype(np.float64))) <= 2.3


def test_sin_at_its_edges(kernels: MicroKernels) -> None:
    got = kernels.map("sinf", np.array([0, -0.0, np.inf, np.nan, 3e38], dtype=np.float32))
    assert np.array_equal(got[:4], [0, 0, NAN, NAN], equal_nan=True)
    assert np.signbit(got[1])
    assert abs(got[4]) <= 1


def test_bf16_widens_exactly(kernels: MicroKernels) -> None:
    got = kernels.map("bf16_to_f32", EVERY_HALF)
    assert np.array_equal(got.view(np.uint32), bf16_to_f32(EVERY_HALF).view(np.uint32))


def test_bf16_rounds_to_nearest_even_and_keeps_nan(kernels: MicroKernels) -> None:
    x = every_kind_of_float()
    assert np.array_equal(kernels.map("f32_to_bf16", x, np.uint16), round_to_bf16(x))


@pytest.mark.parametrize("flush", [False, True])
def test_f16_widens_exactly_whether_denormals_are_flushed_or_not(kernels: MicroKernels, flush: bool) -> None:
    got = kernels.map("f16_to_f32", EVERY_HALF, flush=flush)
    assert np.array_equal(got, EVERY_HALF.view(np.float16).astype(np.float32), equal_nan=True)


def test_f16_rounds_as_numpy_does(kernels: MicroKernels) -> None:
    x = np.concatenate([every_kind_of_float(), EVERY_HALF.view(np.float16).astype(np.float32)])
    got = kernels.map("f32_to_f16", x, np.uint16).view(np.float16)
    with np.errstate(over="ignore"):
        assert np.array_equal(got, x.astype(np.float16), equal_nan=True)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("name", ["exp2f", "log2f", "sinf"])
def test_vector_results_equal_scalar_results_bit_for_bit(
    kernels: MicroKernels, name: str, flush: bool
) -> None:
    x = every_kind_of_float()
    vector = kernels.map(name, x, flush=flush)
    scalar = kernels.map(f"{name}_scalar", x, flush=flush)
    is_nan = np.isnan(vector)
    assert np.array_equal(is_nan, np.isnan(scalar))
    assert np.array_equal(vector[~is_nan].view(np.uint32), scalar[~is_nan].view(np.uint32))
