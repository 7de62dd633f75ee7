"""Contractions over packed panels, and the packing itself."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.codegen.layout import LayoutError, WeightLayout, pack, pack_chunks, panel_stride_bytes, unpack
from compiler.ir.dtype import bf16_to_f32, round_to_bf16
from tests.support.micro_kernels import MicroKernels, guarded

FLOAT_KERNELS = {
    "dot_packed_bf16": WeightLayout.PACKED_BF16_64,
    "dot_packed_f32": WeightLayout.PACKED_F32_64,
}
PACKED = [layout for layout in WeightLayout if layout is not WeightLayout.ROW_MAJOR]
K_SIZES = [1, 2, 3, 31, 32, 33, 64, 127]
ROWS = [1, 2, 3, 5, 6, 7, 12, 13, 16, 17, 31, 32, 33, 47, 64, 70]


def weights(n: int, k: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, k)).astype(np.float32)


def rows_before_poison(m: int, k: int, dtype: type = np.float32) -> np.ndarray:
    """A [M, K] whose rows go on with NaN beyond K."""
    wide = np.full((m, k + 4), np.nan, dtype=np.float32)
    wide[:, :k] = np.random.default_rng(2).standard_normal((m, k))
    return (round_to_bf16(wide) if dtype is np.uint16 else wide)[:, :k]


def as_stored(w: np.ndarray, layout: WeightLayout) -> np.ndarray:
    return w if layout is WeightLayout.PACKED_F32_64 else bf16_to_f32(round_to_bf16(w))


@pytest.mark.parametrize("layout", PACKED)
@pytest.mark.parametrize("shape", [(64, 32), (1, 1), (65, 33), (130, 70)])
def test_unpacking_gives_back_what_was_packed(layout: WeightLayout, shape: tuple[int, int]) -> None:
    w = weights(*shape)
    expected = w if layout is WeightLayout.PACKED_F32_64 else round_to_bf16(w)
    assert np.array_equal(unpack(pack(w, layout), layout, shape), expected)


@pytest.mark.parametrize("layout", PACKED)
def test_bf16_bits_and_their_floats_pack_alike(layout: WeightLayout) -> None:
    bits = round_to_bf16(weights(70, 35))
    assert np.array_equal(pack(bits, layout), pack(bf16_to_f32(bits), layout))


@pytest.mark.parametrize("layout", PACKED)
def test_panels_lie_one_after_the_other(layout: WeightLayout) -> None:
    w = weights(128, 37)
    stride = panel_stride_bytes(layout, 37)
    assert np.array_equal(pack(w, layout)[stride:], pack(w[64:], layout))


@pytest.mark.parametrize("layout", PACKED)
def test_chunks_join_to_the_whole(layout: WeightLayout) -> None:
    w = weights(3000, 3001)
    chunks = list(pack_chunks(w, layout))
    assert len(chunks) > 1
    assert np.array_equal(unpack(np.concatenate(chunks), layout, w.shape)[-1:], unpack_last_row(w, layout))


def unpack_last_row(w: np.ndarray, layout: WeightLayout) -> np.ndarray:
    return w[-1:] if layout is WeightLayout.PACKED_F32_64 else round_to_bf16(w[-1:])


@pytest.mark.parametrize("layout", PACKED)
@pytest.mark.parametrize(
    "array", [np.zeros(64, np.float32), np.zeros((2, 2), np.float64), np.zeros((0, 4), np.float32)]
)
def test_what_is_no_matrix_of_weights_is_refused(layout: WeightLayout, array: np.ndarray) -> None:
    with pytest.raises(LayoutError):
        pack(array, layout)


def test_row_major_keeps_bytes() -> None:
    table = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert pack(table, WeightLayout.ROW_MAJOR).tobytes() == table.tobytes()


@pytest.mark.parametrize("k", K_SIZES)
@pytest.mark.parametrize("name", FLOAT_KERNELS)
def test_a_panel_follows_the_numeric_contract(kernels: MicroKernels, name: str, k: int) -> None:
    layout, w, a = FLOAT_KERNELS[name], weights(64, k), rows_before_poison(13, k)
    got = kernels.packed(f"call_{name}", a, pack(w, layout), k)
    assert np.array_equal(got, kernels.reference("reference_chain", a, as_stored(w, layout).T))


@pytest.mark.parametrize("k", K_SIZES)
@pytest.mark.parametrize("name", FLOAT_KERNELS)
def test_a_panel_accumulates(kernels: MicroKernels, name: str, k: int) -> None:
    layout, w, a, c = FLOAT_KERNELS[name], weights(64, k), rows_before_poison(8, k), weights(8, 64, seed=3)
    got = kernels.packed(f"call_{name}", a, pack(w, layout), k, c)
    assert np.array_equal(got, kernels.reference("reference_chain", a, as_stored(w, layout).T, c))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", FLOAT_KERNELS)
def test_a_rows_bits_do_not_depend_on_the_other_rows(kernels: MicroKernels, name: str, rows: int) -> None:
    panel, a = pack(weights(64, 45), FLOAT_KERNELS[name]), rows_before_poison(70, 45)
    together = kernels.packed(f"call_{name}", a, panel, 45)
    assert np.array_equal(
        kernels.packed(f"call_{name}", a[:rows], panel, 45, hint=rows % 2 == 0), together[:rows]
    )


@pytest.mark.parametrize("name", FLOAT_KERNELS)
def test_k_may_be_cut_without_changing_a_bit(kernels: MicroKernels, name: str) -> None:
    layout, w, a = FLOAT_KERNELS[name], weights(64, 50), rows_before_poison(9, 50)
    whole = kernels.packed(f"call_{name}", a, pack(w, layout), 50)
    first = kernels.packed(f"call_{name}", a[:, :20], pack(w[:, :20], layout), 20)
    both = kernels.packed(f"call_{name}", a[:, 20:], pack(w[:, 20:], layout), 30, first)
    assert np.array_equal(both, whole)


@pytest.mark.parametrize("name", FLOAT_KERNELS)
def test_padding_is_never_multiplied(kernels: MicroKernels, name: str) -> None:
    a = rows_before_poison(2, 5)
    a[0, 4] = np.inf
    got = kernels.packed(f"call_{name}", a, pack(weights(64, 5), FLOAT_KERNELS[name]), 5)
    assert np.isinf(got[0]).all()
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize("k", K_SIZES)
@pytest.mark.parametrize("m", [1, 15, 16, 17, 32, 40])
def test_amx_tiles_multiply(amx_kernels: MicroKernels, m: int, k: int) -> None:
    w, a = weights(64, k), rows_before_poison(m, k, np.uint16)
    got = amx_kernels.packed("call_dot_packed_bf16_amx", a, pack(w, WeightLayout.PACKED_AMX_64), k)
    left, right = bf16_to_f32(a).astype(np.float64), bf16_to_f32(round_to_bf16(w)).astype(np.float64)
    assert (np.abs(got - left @ right.T) <= (k + 2) * 2**-24 * (np.abs(left) @ np.abs(right.T))).all()


@pytest.mark.parametrize("rows", ROWS)
def test_an_amx_rows_bits_do_not_depend_on_the_other_rows(amx_kernels: MicroKernels, rows: int) -> None:
    panel, a = pack(weights(64, 77), WeightLayout.PACKED_AMX_64), rows_before_poison(70, 77, np.uint16)
    together = amx_kernels.packed("call_dot_packed_bf16_amx", a, panel, 77)
    some = amx_kernels.packed("call_dot_packed_bf16_amx", a[:rows], panel, 77, hint=rows % 2 == 0)
    assert np.array_equal(some, together[:rows])


def test_amx_accumulates_in_blocks_of_32(amx_kernels: MicroKernels) -> None:
    w, a, c = weights(64, 96), rows_before_poison(35, 96, np.uint16), weights(35, 64, seed=3)
    layout = WeightLayout.PACKED_AMX_64
    whole = amx_kernels.packed("call_dot_packed_bf16_amx", a, pack(w, layout), 96, c)
    first = amx_kernels.packed("call_dot_packed_bf16_amx", a[:, :64], pack(w[:, :64], layout), 64, c)
    both = amx_kernels.packed("call_dot_packed_bf16_amx", a[:, 64:], pack(w[:, 64:], layout), 32, first)
    assert np.array_equal(both, whole)


@pytest.mark.parametrize("k", K_SIZES)
@pytest.mark.parametrize("name", FLOAT_KERNELS)
def test_nothing_beyond_rows_and_panel_is_read(kernels: MicroKernels, name: str, k: int) -> None:
    layout, w, a = FLOAT_KERNELS[name], weights(64, k), weights(7, k, seed=2)
    got = kernels.packed(f"call_{name}", guarded(a), guarded(pack(w, layout)), k)
    assert np.array_equal(got, kernels.reference("reference_chain", a, as_stored(w, layout).T))


@pytest.mark.parametrize("k", K_SIZES)
def test_nothing_beyond_rows_and_amx_panel_is_read(amx_kernels: MicroKernels, k: int) -> None:
    panel, a = pack(weights(64, k), WeightLayout.PACKED_AMX_64), round_to_bf16(weights(19, k, seed=2))
    got = amx_kernels.packed("call_dot_packed_bf16_amx", guarded(a), guarded(panel), k)
    assert np.array_equal(got, amx_kernels.packed("call_dot_packed_bf16_amx", a, panel, k))
