"""Checkpoints on disk: where tensors lie, and what only the bytes show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from compiler.checkpoint import (
    CheckpointError,
    CheckpointKind,
    ProblemCode,
    RopeKind,
    expected_tensors,
    inspect_directory,
    inverse_frequencies,
)
from tests.support.tiny_checkpoints import TINY, tiny_tensors, write_safetensors, write_tiny_checkpoint
from tests.support.tiny_gguf import write_tiny_gguf


def codes(path: Path) -> list[tuple[str, str | None]]:
    with pytest.raises(CheckpointError) as caught:
        inspect_directory(path)
    return [(problem.code, problem.where) for problem in caught.value.problems]


def rewrite(folder: Path, tensors: dict[str, np.ndarray], **changes: Any) -> Path:
    """A gqa checkpoint with other tensors and a changed config."""
    write_tiny_checkpoint(folder, "gqa")
    write_safetensors(folder / "model.safetensors", tensors, "bfloat16")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    return folder


@pytest.mark.parametrize("variant", TINY)
def test_every_promised_tensor_is_located(variant: str, tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_checkpoint(tmp_path, variant))
    assert info.kind is CheckpointKind.SAFETENSORS
    assert {name: where.shape for name, where in info.tensors.items()} == expected_tensors(info.config)


@pytest.mark.pitfall("S25")
def test_the_shards_of_an_index_are_read_and_nothing_else(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    (tmp_path / "consolidated.safetensors").write_bytes(b"junk")
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    assert sorted(path.name for path in inspect_directory(tmp_path).files) == names


def test_a_single_file_is_a_checkpoint(tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", "gqa", "Q8_0"))
    assert info.kind is CheckpointKind.GGUF
    assert info.gguf_metadata is not None
    assert info.config.tie_word_embeddings


@pytest.mark.parametrize(
    "variant", ["plain", "gqa", "untied", "biases", "odd_heads", "head_dim", "rope_linear"]
)
def test_both_forms_of_a_model_have_one_config_and_the_same_tensors(variant: str, tmp_path: Path) -> None:
    folder = inspect_directory(write_tiny_checkpoint(tmp_path / "hf", variant))
    single = inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", variant))
    assert set(single.tensors) == set(folder.tensors)
    names = [name for name in folder.config.__slots__ if name not in ("dtype", "rms_norm_eps", "rope")]
    assert [getattr(single.config, n) for n in names] == [getattr(folder.config, n) for n in names]
    assert single.config.rms_norm_eps == pytest.approx(folder.config.rms_norm_eps)
    assert inverse_frequencies(single.config.rope, 32) == pytest.approx(
        inverse_frequencies(folder.config.rope, 32)
    )


def test_divisors_in_a_gguf_mean_what_llama3_means(tmp_path: Path) -> None:
    folder = inspect_directory(write_tiny_checkpoint(tmp_path / "hf", "rope_llama3")).config
    single = inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", "rope_llama3")).config
    assert single.rope.kind is RopeKind.DIVISORS
    expected = inverse_frequencies(folder.rope, folder.head_dim)
    assert inverse_frequencies(single.rope, single.head_dim) == pytest.approx(expected, rel=1e-6)


@pytest.mark.pitfall("G2")
def test_rows_to_put_back_are_marked(tmp_path: Path) -> None:
    info = inspect_directory(write_tiny_gguf(tmp_path / "m.gguf", "biases"))
    marked = {
        name: place.interleaved_heads for name, place in info.tensors.items() if place.interleaved_heads
    }
    assert marked == {
        f"model.layers.{layer}.self_attn.{kind}_proj.{suffix}": heads
        for layer in (0, 1)
        for kind, heads in (("q", 4), ("k", 2))
        for suffix in ("weight", "bias")
    }


@pytest.mark.pitfall("S24")
def test_s24_a_tied_head_that_equals_the_embedding_is_ignored(tmp_path: Path) -> None:
    tensors = tiny_tensors(TINY["gqa"])
    rewrite(tmp_path, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]})
    assert "lm_head.weight" not in inspect_directory(tmp_path).tensors


@pytest.mark.pitfall("S24")
def test_s24_a_tied_head_that_differs_is_refused(tmp_path: Path) -> None:
    tensors = tiny_tensors(TINY["gqa"])
    rewrite(tmp_path, {**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"] + 1})
    assert codes(tmp_path) == [(ProblemCode.TIED_HEAD_DIFFERS, "lm_head.weight")]


@pytest.mark.pitfall("S24")
def test_s24_an_untied_model_without_a_head_is_refused(tmp_path: Path) -> None:
    rewrite(tmp_path, tiny_tensors(TINY["gqa"]), tie_word_embeddings=False)
    assert codes(tmp_path) == [(ProblemCode.MISSING_TENSOR, "lm_head.weight")]


@pytest.mark.pitfall("S24")
def test_s24_a_nested_head_is_found(tmp_path: Path) -> None:
    tensors = tiny_tensors(TINY["untied"])
    tensors["model.lm_head.weight"] = tensors.pop("lm_head.weight")
    rewrite(tmp_path, tensors, tie_word_embeddings=False)
    assert "lm_head.weight" in inspect_directory(tmp_path).tensors


def test_a_model_saved_without_its_prefix_is_found(tmp_path: Path) -> None:
    bare = {name.removeprefix("model."): array for name, array in tiny_tensors(TINY["gqa"]).items()}
    info = inspect_directory(rewrite(tmp_path, bare))
    assert set(info.tensors) == set(expected_tensors(info.config))


def test_buffers_of_old_checkpoints_are_ignored(tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(16, np.float32)}
    info = inspect_directory(rewrite(tmp_path, {**tiny_tensors(TINY["gqa"]), **extra}))
    assert set(info.tensors) == set(expected_tensors(info.config))


@pytest.mark.pitfall("S25")
def test_s25_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert codes(tmp_path) == [(ProblemCode.MISSING_SHARD, "model-00002-of-00003.safetensors")]


def test_a_shard_that_lacks_its_tensor_is_named(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    index = tmp_path / "model.safetensors.index.json"
    raw = json.loads(index.read_text())
    raw["weight_map"]["model.norm.weight"] = "model-00001-of-00003.safetensors"
    raw["weight_map"]["model.embed_tokens.weight"] = "model-00002-of-00003.safetensors"
    index.write_text(json.dumps(raw))
    assert (ProblemCode.MISSING_TENSOR, "model.embed_tokens.weight") in codes(tmp_path)


@pytest.mark.pitfall("S26")
def test_s26_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert codes(tmp_path) == [(ProblemCode.TRUNCATED_FILE, "model.safetensors")]


@pytest.mark.pitfall("S26")
def test_s26_a_truncated_gguf_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes()[:-1000])
    assert codes(path) == [(ProblemCode.TRUNCATED_FILE, "m.gguf")]


@pytest.mark.pitfall("S26")
@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", ProblemCode.LFS_POINTER),
        ("model.safetensors", b"", ProblemCode.TRUNCATED_FILE),
        ("model.safetensors", b"PK\x03\x04" + bytes(99), ProblemCode.UNEXPECTED_PICKLE),
        ("config.json", b"version https://git-lfs.github.com/spec/v1\noid", ProblemCode.LFS_POINTER),
        ("config.json", b"{", ProblemCode.BAD_CONFIG),
        ("config.json", b'{"architectures": ["GPTJForCausalLM"]}', ProblemCode.UNKNOWN_ARCHITECTURE),
    ],
)
def test_a_file_that_is_something_else_is_named(name: str, content: bytes, code: str, tmp_path: Path) -> None:
    (write_tiny_checkpoint(tmp_path) / name).write_bytes(content)
    assert [each for each, _ in codes(tmp_path)] == [code]


@pytest.mark.pitfall("S27", "U22")
def test_s27_a_folder_of_pickles_is_refused_unread(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    write_tiny_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(f"cos\nsystem\n(S'touch {canary}'\ntR.".encode())
    assert codes(tmp_path) == [(ProblemCode.UNEXPECTED_PICKLE, "pytorch_model.bin")]
    assert not canary.exists()


@pytest.mark.pitfall("U23")
@pytest.mark.parametrize("damage", [b"", b"x", b"<html>"], ids=["empty", "short", "not weights"])
def test_u23_a_pickle_beside_damaged_weights_is_not_read(damage: bytes, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    write_tiny_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(damage)
    (tmp_path / "pytorch_model.bin").write_bytes(f"cos\nsystem\n(S'touch {canary}'\ntR.".encode())
    assert "model.safetensors" in {where for _, where in codes(tmp_path)}
    assert not canary.exists()


def test_problems_of_config_and_weights_come_together(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model-00001-of-00003.safetensors").write_bytes(b"x")
    (tmp_path / "model-00003-of-00003.safetensors").write_bytes(b"x")
    assert [code for code, _ in codes(tmp_path)] == [
        ProblemCode.UNKNOWN_ARCHITECTURE,
        ProblemCode.TRUNCATED_FILE,
        ProblemCode.TRUNCATED_FILE,
    ]
