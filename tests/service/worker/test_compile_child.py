"""The real compile child: a tiny checkpoint becomes an artifact that runs, broken ones get their codes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from compiler.measure.journal import Journal
from compiler.runtime import load_program
from tests.support.tiny_checkpoints import write_tiny_checkpoint
from tests.support.tiny_families import write_tiny_family
from worker.build import try_out
from worker.compile_process import ProcessCompiler, ProcessCompilerConfig, Watch
from worker.errors import CompileDied, CompileFailed
from worker.protocol import CompileRequest, CompileSettings, Done, Progress

FACTS = {
    "target",
    "levels",
    "vocab_size",
    "max_context",
    "block_size",
    "max_batched_tokens",
    "max_sequences",
    "kv_bytes_per_block",
    "weights_bytes",
}


class Child:
    """Compiles the checkpoint in `checkpoint`, with no time to search."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.checkpoint = home / "checkpoint"
        self.progress: list[Progress] = []

    def compile(self) -> Done:
        config = ProcessCompilerConfig(8 << 30, {"PATH": os.environ["PATH"]}, niceness=0)
        settings = CompileSettings(
            dtype="f32", budget="none", max_context=64, max_batched_tokens=16, max_sequences=4
        )
        request = CompileRequest(
            str(self.checkpoint),
            str(self.home / "out"),
            str(self.home / "cache"),
            settings,
            str(self.home / "journal"),
        )
        watch = Watch(self.progress.append, lambda _: None, lambda: False, lambda: False)
        return ProcessCompiler(config).compile(request, self.home / "log", watch)


@pytest.fixture
def child(tmp_path: Path) -> Child:
    child = Child(tmp_path)
    write_tiny_checkpoint(child.checkpoint, "gqa")
    return child


def test_a_checkpoint_becomes_an_artifact_that_runs(child: Child) -> None:
    done = child.compile()
    assert set(done.info) == FACTS
    assert (done.info["max_context"], done.info["block_size"], done.info["vocab_size"]) == (64, 16, 512)
    assert (child.home / "out" / "tokenizer" / "candela.json").exists()
    program = load_program(child.home / "out" / "artifact", kv_blocks=4)
    assert program.max_sequences == 4
    program.close()
    try_out(child.home / "out" / "artifact")
    fractions = [p.fraction for p in child.progress]
    assert fractions == sorted(fractions)
    assert np.isclose(fractions[-1], 0.95)


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_a_checkpoint_of_another_family_becomes_one_too(name: str, tmp_path: Path) -> None:
    child = Child(tmp_path)
    write_tiny_family(child.checkpoint, name)
    assert child.compile().info["max_context"] == 64
    try_out(child.home / "out" / "artifact")


def test_an_attempt_goes_on_from_the_journal_of_the_last(child: Child) -> None:
    child.compile()
    lines = (child.home / "journal").read_text()
    shutil.rmtree(child.home / "out")
    child.compile()
    assert lines
    assert (child.home / "journal").read_text() == lines


def test_a_journal_in_use_is_done_without(child: Child) -> None:
    with Journal(child.home / "journal"):
        child.compile()
    assert (child.home / "out" / "artifact" / "manifest.json").exists()
    assert (child.home / "journal").read_text() == ""


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def pickle_it(path: Path) -> None:
    path.write_bytes(b"\x80\x04\x95" + b"c" * 4096)


def edit_architecture(path: Path) -> None:
    config = path.with_name("config.json")
    config.write_text(config.read_text().replace("LlamaForCausalLM", "UnheardOfForCausalLM"))


def remove_tokenizer(path: Path) -> None:
    path.with_name("tokenizer.json").unlink()


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (truncate, "truncated_file"),
        (pickle_it, "unexpected_pickle"),
        (edit_architecture, "unknown_architecture"),
        (remove_tokenizer, "missing_tokenizer"),
        (Path.unlink, "missing_weights"),
    ],
)
def test_a_broken_checkpoint_is_refused_with_its_code(
    child: Child, damage: Callable[[Path], None], code: str
) -> None:
    damage(child.checkpoint / "model.safetensors")
    with pytest.raises(CompileFailed) as refused:
        child.compile()
    assert refused.value.code == code


def test_an_error_of_ours_ends_it_with_its_last_words(child: Child) -> None:
    (child.home / "out").write_text("a file where a folder should be")
    with pytest.raises(CompileDied, match=r"exited with code 1 .*(NotADirectory|FileExists)Error"):
        child.compile()


def test_a_missing_shard_is_named(child: Child) -> None:
    shutil.rmtree(child.checkpoint)
    write_tiny_checkpoint(child.checkpoint, "sharded")
    shard = sorted(child.checkpoint.glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(CompileFailed, match=shard.name) as refused:
        child.compile()
    assert refused.value.code == "missing_shard"
