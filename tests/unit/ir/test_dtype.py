"""Element types against PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compiler.ir.dtype import DType, bf16_to_f32, is_float, itemsize, round_to_bf16, to_numpy_storage


def test_every_bf16_pattern_widens_as_pytorch_widens_it():
    bits = np.arange(1 << 16, dtype=np.uint16)
    theirs = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert np.array_equal(bf16_to_f32(bits).view(np.uint32), theirs.view(np.uint32))


def test_rounding_to_bf16_is_pytorchs_for_every_exponent_sign_and_tie():
    rng = np.random.default_rng(0)
    random = rng.integers(0, 1 << 32, 200_000, dtype=np.uint64).astype(np.uint32)
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16) | np.uint32(0x8000)
    values = np.concatenate([random, ties, ties + 1, ties - 1]).view(np.float32)
    values = values[~np.isnan(values)]
    theirs = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(round_to_bf16(values), theirs)


def test_a_nan_stays_a_nan_in_bf16():
    payloads = np.array([0x7FFFFFFF, 0x7F800001, 0xFFFFFFFF, 0xFF800001, 0x7FC00000], dtype=np.uint32)
    assert np.isnan(bf16_to_f32(round_to_bf16(payloads.view(np.float32)))).all()


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_rounding_keeps_the_shape(shape):
    rounded, widened = round_to_bf16(np.ones(shape, np.float32)), bf16_to_f32(np.ones(shape, np.uint16))
    assert (rounded.shape, widened.shape) == (shape, shape)
    assert isinstance(rounded, np.ndarray)
    assert isinstance(widened, np.ndarray)


@pytest.mark.parametrize("dtype", list(DType))
def test_storage_has_the_items_size(dtype):
    assert to_numpy_storage(dtype).itemsize == itemsize(dtype)
    assert is_float(dtype) == (dtype in {DType.F32, DType.F16, DType.BF16})
