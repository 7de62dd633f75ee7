"""What the client sends about a checkpoint lets the platform judge it before any weights move."""

from __future__ import annotations

from pathlib import Path

import pytest

from candela.client.source import read_source
from compiler.checkpoint import ProblemCode, triage
from tests.support.tiny_checkpoints import write_tiny_checkpoint
from tests.support.tiny_families import FAMILIES, write_tiny_family
from tests.support.tiny_family_gguf import write_tiny_family_gguf


def judged(folder: Path) -> list[tuple[str, str | None]]:
    source = read_source(folder, lambda progress: None)
    sizes = {file.name: file.size_bytes for file in source.files}
    return [(problem.code, problem.where) for problem in triage(sizes, source.config, source.headers)]


def test_a_sharded_checkpoint_passes(tmp_path: Path) -> None:
    assert judged(write_tiny_checkpoint(tmp_path, "sharded")) == []


@pytest.mark.parametrize("name", FAMILIES)
def test_a_checkpoint_of_every_family_passes(name: str, tmp_path: Path) -> None:
    assert judged(write_tiny_family(tmp_path, name)) == []


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "qwen3"])
def test_a_gguf_of_another_family_passes(name: str, tmp_path: Path) -> None:
    write_tiny_family_gguf(tmp_path / "model.gguf", name)
    assert judged(tmp_path) == []


def test_weights_of_one_family_under_the_config_of_another_are_found(tmp_path: Path) -> None:
    write_tiny_family(tmp_path, "qwen3")
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace("Qwen3ForCausalLM", "LlamaForCausalLM"))
    assert (ProblemCode.UNEXPECTED_TENSOR, "model.layers.0.self_attn.q_norm.weight") in judged(tmp_path)


@pytest.mark.pitfall("S25")
def test_a_missing_shard_is_found_before_the_upload(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert judged(tmp_path) == [(ProblemCode.MISSING_SHARD, "model-00002-of-00003.safetensors")]
