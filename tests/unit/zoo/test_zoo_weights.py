"""Reading and dequantising weights, bit for bit against `gguf`, torch and what was stored."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compiler.checkpoint import inspect_directory
from compiler.zoo.dequantise import dequantise, from_bf16, to_bf16
from compiler.zoo.weights import open_weights
from tests.support.tiny_checkpoints import TINY, tiny_tensors, write_tiny_checkpoint
from tests.support.tiny_gguf import write_tiny_gguf

BLOCK_TYPES = ["Q8_0", "Q4_0", "Q4_1"]
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


def random_blocks(dtype: str, rows: int = 24, columns: int = 96) -> np.ndarray:
    """Every bit of every block random, scales finite."""
    kind = gguf.GGMLQuantizationType[dtype]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(7).integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    data[:, :, 1] &= 0xBB
    data[:, :, 3] &= 0xBB
    return data.reshape(rows, -1)


@pytest.mark.parametrize("dtype", BLOCK_TYPES)
def test_blocks_decode_as_the_package_decodes_them(dtype: str) -> None:
    data = random_blocks(dtype)
    expected = gguf.dequantize(data, gguf.GGMLQuantizationType[dtype])
    assert np.array_equal(dequantise(data.reshape(-1), dtype, (24, 96)), expected)


@pytest.mark.parametrize(("dtype", "torch_dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_every_half_precision_number_widens_exactly(dtype: str, torch_dtype: torch.dtype) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    expected = torch.from_numpy(codes.view(np.int16)).view(torch_dtype).float().numpy()
    assert np.array_equal(dequantise(codes.view(np.uint8), dtype, (1 << 16,)), expected, equal_nan=True)


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=1, max_size=64))
def test_rounding_to_bf16_is_torchs(codes: list[int]) -> None:
    values = np.array(codes, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    assert np.array_equal(from_bf16(to_bf16(values)), expected, equal_nan=True)


def test_ties_round_to_even_and_overflow_to_infinity() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00008000, 0x80000000], dtype=np.uint32)
    assert to_bf16(bits.view(np.float32)).tolist() == [0x3F80, 0x3F82, 0x7F80, 0x0000, 0x8000]


@pytest.mark.parametrize("variant", ["gqa", "biases", "sharded", "f32", "f16"])
def test_safetensors_hold_what_was_stored(variant: str, tmp_path: Path) -> None:
    spec = TINY[variant]
    torch_dtype = getattr(torch, spec.dtype)
    expected = {n: torch.from_numpy(a).to(torch_dtype).float().numpy() for n, a in tiny_tensors(spec).items()}
    with open_weights(inspect_directory(write_tiny_checkpoint(tmp_path, variant))) as weights:
        read = {name: weights.f32(name) for name in weights}
    assert read.keys() == expected.keys()
    assert all(np.array_equal(read[name], expected[name]) for name in expected)


@pytest.mark.pitfall("G2")
@pytest.mark.parametrize("variant", ["gqa", "biases", "odd_heads", "head_dim"])
def test_g2_a_gguf_gives_rows_in_hugging_faces_order(variant: str, tmp_path: Path) -> None:
    expected = tiny_tensors(TINY[variant])
    with open_weights(inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", variant, "F32"))) as weights:
        assert all(np.array_equal(weights.f32(name), expected[name]) for name in expected)


@pytest.mark.pitfall("G2")
@pytest.mark.parametrize("dtype", BLOCK_TYPES)
def test_g2_quantised_rows_are_put_back_whole(dtype: str, tmp_path: Path) -> None:
    kind = gguf.GGMLQuantizationType[dtype]
    stored = tiny_tensors(TINY["gqa"])[Q_PROJ]
    expected = gguf.dequantize(gguf.quantize(stored, kind), kind)
    with open_weights(inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", "gqa", dtype))) as weights:
        assert np.array_equal(weights.f32(Q_PROJ), expected)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16", *BLOCK_TYPES])
def test_bf16_is_the_f32_value_rounded_once(dtype: str, tmp_path: Path) -> None:
    with open_weights(inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", "biases", dtype))) as weights:
        assert all(np.array_equal(weights.bf16(name), to_bf16(weights.f32(name))) for name in weights)


def test_bf16_tensors_come_through_unchanged(tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_checkpoint(tmp_path, "gqa"))
    place = info.tensors[Q_PROJ]
    stored = place.file.read_bytes()[place.offset : place.offset + place.nbytes]
    with open_weights(info) as weights:
        assert weights[Q_PROJ].dtype == "BF16"
        assert weights.bf16(Q_PROJ).tobytes() == stored


def test_arrays_outlive_the_open_checkpoint(tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_checkpoint(tmp_path, "f32"))
    with open_weights(info) as weights:
        view = weights[Q_PROJ].data
    assert np.array_equal(view, tiny_tensors(TINY["f32"])[Q_PROJ])
