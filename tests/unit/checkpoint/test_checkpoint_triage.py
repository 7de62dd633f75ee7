"""Uploads judged from names, sizes, config and headers: every problem, by file and tensor, at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compiler.checkpoint import INDEX_NAME, CheckpointError, ProblemCode, parse_index, read_heads, triage
from compiler.checkpoint.errors import MAX_PROBLEMS
from compiler.checkpoint.names import MAX_FILES, name_fault
from tests.support.tiny_checkpoints import TINY, tiny_config, write_tiny_checkpoint
from tests.support.tiny_gguf import write_tiny_gguf

CONFIG = tiny_config(TINY["gqa"])
FILES = {"config.json": 800, "tokenizer.json": 9000, "model.safetensors": 700_000}


def found(
    files: dict[str, int], config: dict[str, Any] | None = CONFIG, **headers: Any
) -> list[tuple[str, str | None]]:
    sent = {name.replace("__", "."): header for name, header in headers.items()}
    return [(problem.code, problem.where) for problem in triage(files, config, sent)]


def announced(folder: Path) -> tuple[dict[str, int], dict[str, Any] | None, dict[str, Any]]:
    """What a client would send for this folder."""
    files = {path.name: path.stat().st_size for path in folder.iterdir()}
    config = folder / "config.json"
    raw = json.loads(config.read_text()) if config.exists() else None
    return files, raw, dict(read_heads(folder, files))


def codes(folder: Path) -> list[tuple[str, str | None]]:
    return [(problem.code, problem.where) for problem in triage(*announced(folder))]


@pytest.mark.parametrize("variant", TINY)
def test_a_good_checkpoint_has_no_problems(variant: str, tmp_path: Path) -> None:
    assert codes(write_tiny_checkpoint(tmp_path, variant)) == []


@pytest.mark.parametrize("variant", ["gqa", "biases", "rope_llama3"])
def test_a_good_gguf_has_no_problems(variant: str, tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", variant, "Q4_0")
    assert codes(tmp_path) == []


def test_names_alone_are_enough_for_a_first_judgement() -> None:
    assert found(FILES, None) == []


@pytest.mark.pitfall("U18")
@pytest.mark.parametrize(
    "name",
    [
        "../model.safetensors",
        "a/../../b",
        "/etc/passwd",
        "~/x",
        "a//b",
        "./a",
        "a/",
        "..",
        "C:\\x",
        "a\x00b",
        "a\nb",
        "a\u202eb",
        "a b /c",
        "",
        "x" * 600,
        "a/b/c/d/e/f/g/h/i",
    ],
)
def test_a_name_that_is_not_plainly_inside_the_folder_is_refused(name: str) -> None:
    assert found({**FILES, name: 5}) == [(ProblemCode.BAD_NAME, name[:200])]


@pytest.mark.parametrize("name", ["model.safetensors", "a b.txt", "onnx/x.json", "ü.txt", ".gitattributes"])
def test_a_plain_name_is_accepted(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.pitfall("S27", "U22")
@pytest.mark.parametrize("name", ["pytorch_model.bin", "a.pt", "a.PTH", "x/y.ckpt", "a.pkl"])
def test_a_pickle_is_refused_with_advice(name: str) -> None:
    (problem,) = triage({**FILES, name: 5}, CONFIG)
    assert (problem.code, problem.where) == (ProblemCode.UNEXPECTED_PICKLE, name)
    assert "safetensors" in problem.message


def test_everything_wrong_is_named_at_once() -> None:
    files = {"config.json": 0, "../x": 1, "weights.bin": 3, "MODEL.safetensors": 9, "model.safetensors": 9}
    assert set(found({**files, "tokenizer.model": 4}, {**CONFIG, "hidden_act": "relu"})) >= {
        (ProblemCode.EMPTY_FILE, "config.json"),
        (ProblemCode.BAD_NAME, "../x"),
        (ProblemCode.UNEXPECTED_PICKLE, "weights.bin"),
        (ProblemCode.DUPLICATE_NAME, "model.safetensors"),
        (ProblemCode.MISSING_TOKENIZER, "tokenizer.json"),
        (ProblemCode.UNSUPPORTED_CONFIG, "hidden_act"),
    }


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({"config.json": 5, "tokenizer.json": 5}, ProblemCode.MISSING_WEIGHTS),
        ({**FILES, "a.gguf": 5}, ProblemCode.AMBIGUOUS_WEIGHTS),
        ({"a.gguf": 5, "b.gguf": 5}, ProblemCode.AMBIGUOUS_WEIGHTS),
        ({"a-00001-of-00002.gguf": 5}, ProblemCode.UNSUPPORTED_GGUF),
        (
            {"config.json": 5, "tokenizer.json": 5, "model-00001-of-00002.safetensors": 5},
            ProblemCode.MISSING_INDEX,
        ),
    ],
)
def test_the_weights_must_be_one_clear_choice(files: dict[str, int], code: ProblemCode) -> None:
    assert [each for each, _ in found(files)] == [code]


def test_a_missing_config_is_named() -> None:
    assert found({"tokenizer.json": 5, "model.safetensors": 5}, None) == [
        (ProblemCode.MISSING_CONFIG, "config.json")
    ]


def test_too_many_files_are_refused_without_looking_at_them() -> None:
    assert found({f"f{i}": 1 for i in range(MAX_FILES + 1)}) == [(ProblemCode.TOO_MANY_FILES, None)]


def test_a_hopeless_upload_gets_a_bounded_list() -> None:
    problems = triage({f"f{i}.bin": 1 for i in range(MAX_FILES)}, CONFIG)
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[-1].code == ProblemCode.TOO_MANY_PROBLEMS


@pytest.mark.pitfall("S25")
def test_missing_shards_are_each_named(tmp_path: Path) -> None:
    files, config, heads = announced(write_tiny_checkpoint(tmp_path, "sharded"))
    gone = ["model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"]
    kept = {name: size for name, size in files.items() if name not in gone}
    assert [(p.code, p.where) for p in triage(kept, config, heads)] == [
        (ProblemCode.MISSING_SHARD, n) for n in gone
    ]


def test_an_index_that_was_not_sent_is_not_judged(tmp_path: Path) -> None:
    files, config, _ = announced(write_tiny_checkpoint(tmp_path, "sharded"))
    assert triage(files, config, {}) == ()


@pytest.mark.pitfall("S25")
def test_a_stray_file_beside_the_index_is_not_read(tmp_path: Path) -> None:
    write_tiny_checkpoint(tmp_path, "sharded")
    (tmp_path / "stray.safetensors").write_bytes(b"not a safetensors file")
    assert codes(tmp_path) == []


@pytest.mark.parametrize("shard", ["../x.safetensors", "/etc/x.safetensors", "x.bin", "a\\b.safetensors"])
def test_an_index_cannot_name_a_file_outside_or_of_another_kind(shard: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse_index({"weight_map": {"a": shard, "b": "model.safetensors"}})
    assert [p.code for p in caught.value.problems] == [ProblemCode.BAD_NAME]


@pytest.mark.parametrize("raw", [{}, {"weight_map": []}, {"weight_map": {}}, {"weight_map": {"a": 1}}])
def test_a_malformed_index_is_refused(raw: dict[str, Any]) -> None:
    assert found({**FILES, INDEX_NAME: 5}, **{INDEX_NAME: raw}) == [(ProblemCode.BAD_INDEX, INDEX_NAME)]


def test_tensors_that_do_not_fit_the_config_are_each_named(tmp_path: Path) -> None:
    files, config, heads = announced(write_tiny_checkpoint(tmp_path, "gqa"))
    assert config is not None
    found_now = {
        (p.code, p.where) for p in triage(files, {**config, "num_hidden_layers": 3, "vocab_size": 500}, heads)
    }
    assert (ProblemCode.MISSING_TENSOR, "model.layers.2.mlp.up_proj.weight") in found_now
    assert (ProblemCode.WRONG_SHAPE, "model.embed_tokens.weight") in found_now
    assert len(found_now) == 10


@pytest.mark.pitfall("S24")
def test_an_untied_model_without_a_head_is_refused(tmp_path: Path) -> None:
    files, config, heads = announced(write_tiny_checkpoint(tmp_path, "gqa"))
    assert [
        (p.code, p.where) for p in triage(files, {**(config or {}), "tie_word_embeddings": False}, heads)
    ] == [(ProblemCode.MISSING_TENSOR, "lm_head.weight")]


def test_a_bias_that_the_config_denies_is_refused(tmp_path: Path) -> None:
    files, config, heads = announced(write_tiny_checkpoint(tmp_path, "biases"))
    problems = triage(files, {**(config or {}), "attention_bias": False}, heads)
    assert {p.code for p in problems} == {ProblemCode.UNEXPECTED_TENSOR}
    assert len(problems) == 8


def test_a_header_that_does_not_fit_the_size_is_found_before_upload(tmp_path: Path) -> None:
    files, config, heads = announced(write_tiny_checkpoint(tmp_path, "gqa"))
    files["model.safetensors"] -= 1
    assert [p.code for p in triage(files, config, heads)] == [ProblemCode.TRUNCATED_FILE]


def test_headers_may_come_as_parsed_json(tmp_path: Path) -> None:
    files, config, heads = announced(write_tiny_checkpoint(tmp_path, "sharded"))
    parsed = {name: json.loads(head[8:] if name != INDEX_NAME else head) for name, head in heads.items()}
    assert triage(files, config, parsed) == ()


def test_a_gguf_of_another_architecture_is_refused(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"llama", b"gpt99", 1))
    files, _, heads = announced(tmp_path)
    assert [p.code for p in triage(files, None, heads)] == [ProblemCode.UNKNOWN_ARCHITECTURE]


def test_only_the_standard_library_is_needed() -> None:
    heavy = "('numpy', 'torch', 'pydantic', 'common', 'tokenizers')"
    code = f"import sys, compiler.checkpoint; print([m for m in sys.modules if m.split('.')[0] in {heavy}])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
