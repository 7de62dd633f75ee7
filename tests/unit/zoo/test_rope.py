"""The rotary tables against transformers', bit for bit in the angles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from compiler.checkpoint import Rope, RopeKind, config_from_hf
from compiler.zoo.rope import inverse_frequencies_f32, rope_tables
from tests.support.llama_oracle import oracle_model
from tests.support.tiny_checkpoints import TINY, TinyLlama, tiny_config, tiny_tensors

LLAMA31 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SPECS = {
    "plain": TINY["plain"],
    "wide": replace(TINY["plain"], head_dim=128, rope_theta=500000.0),
    "million": replace(TINY["plain"], head_dim=96, rope_theta=1000000.0),
    "linear": TINY["rope_linear"],
    "llama3": replace(TINY["plain"], head_dim=128, rope_theta=500000.0, rope_scaling=LLAMA31),
    "llama32": replace(
        TINY["plain"], head_dim=64, rope_theta=500000.0, rope_scaling={**LLAMA31, "factor": 32.0}
    ),
    "tiny_llama3": TINY["rope_llama3"],
}


def rotary_of(spec: TinyLlama) -> torch.nn.Module:
    return oracle_model(spec, tiny_tensors(spec)).model.rotary_emb


@pytest.mark.pitfall("S28")
@pytest.mark.parametrize("name", sorted(SPECS))
def test_frequencies_have_transformers_bits(name):
    spec = SPECS[name]
    ours = inverse_frequencies_f32(config_from_hf(tiny_config(spec)).rope, spec.width)
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, rotary_of(spec).inv_freq.numpy())


@pytest.mark.pitfall("S28")
@pytest.mark.parametrize("name", sorted(SPECS))
def test_tables_are_transformers_to_the_last_unit_but_one(name):
    spec = SPECS[name]
    cos, sin = rotary_of(spec)(torch.zeros(1), torch.arange(4000)[None])
    tables = rope_tables(config_from_hf(tiny_config(spec)), 4000)
    half = spec.width // 2
    assert tables["rope.cos"].shape == (4000, half)
    np.testing.assert_allclose(tables["rope.cos"], cos[0, :, :half].numpy(), rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(tables["rope.sin"], sin[0, :, :half].numpy(), rtol=0, atol=1.2e-7)


@pytest.mark.pitfall("S28")
@pytest.mark.parametrize("name", ["llama3", "llama32"])
def test_s28_tables_agree_at_the_original_length_and_far_beyond(name):
    length = LLAMA31["original_max_position_embeddings"]
    positions = [0, length - 1, length, length + 1, 4 * length]
    cos, sin = rotary_of(SPECS[name])(torch.zeros(1), torch.tensor([positions]))
    tables = rope_tables(config_from_hf(tiny_config(SPECS[name])), 4 * length + 1)
    half = SPECS[name].width // 2
    np.testing.assert_allclose(tables["rope.cos"][positions], cos[0, :, :half].numpy(), rtol=0, atol=1.2e-7)
    np.testing.assert_allclose(tables["rope.sin"][positions], sin[0, :, :half].numpy(), rtol=0, atol=1.2e-7)


def test_divisors_divide_each_frequency():
    plain = inverse_frequencies_f32(Rope(10000.0), 8)
    divided = inverse_frequencies_f32(Rope(10000.0, RopeKind.DIVISORS, divisors=(1.0, 2.0, 4.0, 8.0)), 8)
    np.testing.assert_array_equal(divided, plain / np.float32([1, 2, 4, 8]))
