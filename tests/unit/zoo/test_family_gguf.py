"""GGUF files of the families beside Llama: config, tensors and logits are those of the folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from compiler.checkpoint import CheckpointError, inspect_directory, read_heads, triage
from compiler.zoo import build_step, step_tables
from compiler.zoo.weights import open_weights
from tests.support.family_oracle import family_model
from tests.support.llama_oracle import oracle_logits
from tests.support.paged_steps import PagedBatches, chunked_schedule, run_reference
from tests.support.tiny_checkpoints import VOCAB_SIZE
from tests.support.tiny_families import family_tensors, write_tiny_family
from tests.support.tiny_family_gguf import as_stored, write_tiny_family_gguf

NAMES = ("gpt2", "qwen2", "qwen3", "qwen3_untied", "gemma2")
SCALES = {"gemma2": 64**-0.5}
"""The tiny Gemma scales its scores in a way that a GGUF file cannot say."""


@pytest.mark.parametrize("name", NAMES)
def test_the_config_is_that_of_the_folder(name: str, tmp_path: Path) -> None:
    found = inspect_directory(write_tiny_family_gguf(tmp_path / "model.gguf", name)).config
    wanted = inspect_directory(write_tiny_family(tmp_path / "hf", name, "float32")).config
    assert found.rms_norm_eps == pytest.approx(wanted.rms_norm_eps)
    ours = replace(found, rms_norm_eps=wanted.rms_norm_eps, bos_token_id=1)
    scale = None if name in SCALES else wanted.query_scale
    assert ours == replace(wanted, norm_offset=0.0, stores_in_out=False, query_scale=scale)


@pytest.mark.parametrize("name", NAMES)
def test_the_tensors_are_those_that_were_stored(name: str, tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_family_gguf(tmp_path / "model.gguf", name))
    wanted = as_stored(name)
    with open_weights(info) as weights:
        assert set(weights) == set(wanted)
        assert [n for n in wanted if not np.array_equal(weights.f32(n), wanted[n])] == []


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma2"])
def test_its_step_gives_transformers_logits(name: str, tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_family_gguf(tmp_path / "model.gguf", name))
    config = replace(info.config, query_scale=96**-0.5 if name in SCALES else info.config.query_scale)
    lengths = (40, 9)
    ids = [np.random.default_rng(k).integers(0, VOCAB_SIZE, n).tolist() for k, n in enumerate(lengths)]
    with open_weights(info) as opened:
        weights = {n: opened.f32(n) for n in opened} | step_tables(config, 64)
        graph = build_step(config, dtype="f32", max_context=64)
        batches = PagedBatches(ids, blocks=9)
        ours = run_reference(graph, weights, batches, chunked_schedule(lengths, 16, 2))
    for found, wanted in zip(ours, oracle_logits(family_model(name, family_tensors(name)), ids), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", NAMES)
def test_triage_accepts_what_inspection_does(name: str, tmp_path: Path) -> None:
    path = write_tiny_family_gguf(tmp_path / "model.gguf", name)
    heads = read_heads(tmp_path, [path.name])
    assert triage({path.name: path.stat().st_size}, None, heads) == ()


def test_a_tensor_of_another_family_is_named(tmp_path: Path) -> None:
    path = write_tiny_family_gguf(tmp_path / "model.gguf", "qwen3")
    data = path.read_bytes().replace(b"blk.0.attn_q_norm.weight", b"blk.0.attn_x_norm.weight")
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="attn_x_norm"):
        inspect_directory(path)
